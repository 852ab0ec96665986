"""A folder of embedded texts: `embeddings.npy` and, row for row, `texts.jsonl`. What `submit --out` makes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from embedq.records import Record
from embedq.task import ItemError
from embedq.vectorfile import VectorFile
from embedq.wholefile import whole_file

VECTORS = "embeddings.npy"
TEXTS = "texts.jsonl"


class BadCollectionError(ValueError):
    """There is nothing to search at this place. The message says what is missing."""


class CollectionWriter:
    """Adds rows to both files at once, so that row i of one is row i of the other."""

    def __init__(self, vectors: BinaryIO, texts: BinaryIO) -> None:
        self._vectors = VectorFile(vectors)
        self._texts = texts

    def append(
        self, records: Sequence[Record], vectors: npt.NDArray[np.float32], errors: Mapping[int, ItemError]
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
    with whole_file(folder / TEXTS) as texts, whole_file(folder / VECTORS) as vectors:
        writer = CollectionWriter(vectors, texts)
        yield writer
        writer.finish()


@dataclass(frozen=True, slots=True)
class Collection:
    """Vectors and, where they are known, where their texts are.

    Attributes:
        vectors: float32 [n, dimension], mapped from the file, not read.
        texts_file: None for a bare array.
    """

    vectors: npt.NDArray[np.float32]
    texts_file: Path | None

    def rows(self, wanted: Sequence[int]) -> dict[int, Mapping[str, Any]]:
        """What `texts.jsonl` says of these rows; nothing when there is none. One pass over the file."""
        if self.texts_file is None or not wanted:
            return {}
        found: dict[int, Mapping[str, Any]] = {}
        needed = set(wanted)
        with self.texts_file.open("rb") as file:
            for row, line in enumerate(islice(file, max(wanted) + 1)):
                if row in needed:
                    found[row] = json.loads(line)
        return found


def open_collection(path: Path) -> Collection:
    """The collection in a folder, or a bare `.npy` file.

    Raises:
        BadCollectionError: there is none, or it is not an array of float vectors.
    """
    file = path / VECTORS if path.is_dir() else path
    if not file.is_file():
        raise BadCollectionError(f"{file} does not exist; `embedq submit FILE --out {path}` makes it")
    try:
        vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise BadCollectionError(f"{file} is not a .npy array ({error})") from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f":  # noqa: PLR2004 - rows and columns
        raise BadCollectionError(f"{file} holds {vectors.dtype} {list(vectors.shape)}, not rows of float vectors")
    texts = path / TEXTS
    return Collection(vectors, texts if path.is_dir() and texts.is_file() else None)
