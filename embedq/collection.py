"""A folder of embedded texts, as `submit --out` makes it: `embeddings.npy` and, row for row, `texts.jsonl`."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from embedq.atomic_file import atomic_file
from embedq.errors import BadInputError, EmbedqClientError
from embedq.records import Record
from embedq.task import TextError

VECTORS = "embeddings.npy"
TEXTS = "texts.jsonl"


class VectorFile:
    """Writes a float32 [n, dimension] `.npy` file row by row; `n` need not be known. Call `finish` after the last row.

    Args:
        file: empty, seekable, opened for writing bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._dimension: int | None = None
        self.rows = 0

    def append(self, vectors: npt.NDArray[np.float32]) -> None:
        """Adds rows. An array without columns (a task of which nothing succeeded) becomes rows of NaN.

        Raises:
            EmbedqClientError: the rows are not as long as those before.
        """
        count, width = vectors.shape
        if width and self._dimension is None:
            self._dimension = width
            self._write_header()
            self._write_missing(self.rows)
        if width and width != self._dimension:
            raise EmbedqClientError(
                f"rows of {width} numbers after rows of {self._dimension}: the model has changed", code="model_changed"
            )
        if width:
            self._file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        elif self._dimension is not None:
            self._write_missing(count)
        self.rows += count

    def finish(self) -> None:
        """Writes the number of rows into the header."""
        self._write_header()

    def _write_missing(self, count: int) -> None:
        self._file.write(np.full((count, self._dimension or 0), np.nan, dtype="<f4").tobytes())

    def _write_header(self) -> None:
        # numpy leaves room in the header for the first axis to grow to any length, so its size does not change.
        self._file.seek(0)
        header = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self._dimension or 0)}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._file.seek(0, os.SEEK_END)


class CollectionWriter:
    """Adds rows to both files at once, so that row i of one is row i of the other."""

    def __init__(self, vectors: BinaryIO, texts: BinaryIO) -> None:
        self._vectors = VectorFile(vectors)
        self._texts = texts

    def append(
        self, records: Sequence[Record], vectors: npt.NDArray[np.float32], errors: Mapping[int, TextError]
    ) -> None:
        """Adds one row per record; `errors` are by position in `records`."""
        first = self._vectors.rows
        self._vectors.append(vectors)
        for index, record in enumerate(records):
            line: dict[str, Any] = {"row": first + index, "line": record.line, "text": record.text}
            if record.id is not None:
                line["id"] = record.id
            if index in errors:
                line["error"] = {"code": errors[index].code, "message": errors[index].message}
            self._texts.write(json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")

    def finish(self) -> None:
        """Completes the files."""
        self._vectors.finish()


@contextmanager
def writing(folder: Path) -> Iterator[CollectionWriter]:
    """A writer for a new collection in `folder`, which is created; it replaces an older one at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / TEXTS) as texts, atomic_file(folder / VECTORS) as vectors:
        writer = CollectionWriter(vectors, texts)
        yield writer
        writer.finish()


@dataclass(frozen=True, slots=True)
class Collection:
    """Vectors and, where it is known, the file of their texts.

    Attributes:
        vectors: float32 [n, dimension], mapped from the file, not read.
        texts_file: None for a bare array.
    """

    vectors: npt.NDArray[np.float32]
    texts_file: Path | None

    def rows(self, wanted: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """The objects of these rows in `texts.jsonl`; {} where there is no such file. One pass over the file."""
        if self.texts_file is None or not wanted:
            return {}
        rows: dict[int, Mapping[str, Any]] = {}
        needed = set(wanted)
        with self.texts_file.open("rb") as file:
            for row, line in enumerate(islice(file, max(wanted) + 1)):
                if row in needed:
                    rows[row] = json.loads(line)
        return rows


def open_collection(path: Path) -> Collection:
    """The collection in a folder, or a bare `.npy` file.

    Raises:
        BadInputError: there is none, or it is not an array of float vectors.
    """
    file = path / VECTORS if path.is_dir() else path
    if not file.is_file():
        raise BadInputError(f"{file} does not exist; `embedq submit FILE --out {path}` makes it")
    try:
        vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise BadInputError(f"{file} is not a .npy array ({error})") from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f":  # noqa: PLR2004 - rows and columns
        raise BadInputError(f"{file} holds {vectors.dtype} {list(vectors.shape)}, not rows of float vectors")
    texts = path / TEXTS
    return Collection(vectors, texts if path.is_dir() and texts.is_file() else None)
