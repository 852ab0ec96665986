"""A folder of embedded texts, as `submit --out` makes it: `embeddings.npy` and, row for row, `texts.jsonl`."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from embedq.atomic_file import atomic_file
from embedq.errors import EmbedqClientError
from embedq.records import Record

VECTORS = "embeddings.npy"
TEXTS = "texts.jsonl"


class VectorFolder:
    """Adds rows to both files at once; how many there will be need not be known.

    Args:
        vectors, texts: empty, seekable, opened for writing bytes.
    """

    def __init__(self, vectors: BinaryIO, texts: BinaryIO) -> None:
        self._vectors = vectors
        self._texts = texts
        self._dimension = 0
        self._rows = 0

    def append(
        self, records: Sequence[Record], vectors: npt.NDArray[np.float32], errors: Mapping[int, Mapping[str, str]]
    ) -> None:
        """Adds a row per record. An array without columns (nothing succeeded) becomes rows of NaN.

        Raises:
            EmbedqClientError: the rows are not as long as those before.
        """
        count, width = vectors.shape
        if width and not self._dimension:
            self._dimension = width
            self.write_header()
            self._write(np.full((self._rows, width), np.nan))
        if width not in {0, self._dimension}:
            raise EmbedqClientError(
                f"rows of {width} numbers after rows of {self._dimension}: the model has changed", code="model_changed"
            )
        self._write(vectors if width else np.full((count, self._dimension), np.nan))
        for index, record in enumerate(records):
            line: dict[str, Any] = {"row": self._rows + index, "line": record.line, "text": record.text}
            line |= {} if record.id is None else {"id": record.id}
            line |= {"error": errors[index]} if index in errors else {}
            self._texts.write(json.dumps(line, ensure_ascii=False).encode(errors="backslashreplace") + b"\n")
        self._rows += count

    def write_header(self) -> None:
        """Says in the array's header how many rows there are by now."""
        # numpy leaves room in the header for the first axis to grow to any length, so its size does not change.
        self._vectors.seek(0)
        header = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, self._dimension)}
        np.lib.format.write_array_header_1_0(self._vectors, header)
        self._vectors.seek(0, os.SEEK_END)

    def _write(self, rows: npt.NDArray[np.floating]) -> None:
        self._vectors.write(np.ascontiguousarray(rows, dtype="<f4").tobytes())


@contextmanager
def vector_folder(folder: Path) -> Iterator[VectorFolder]:
    """A new folder to write to, which is made; it replaces older files at the end of the block, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / TEXTS) as texts, atomic_file(folder / VECTORS) as vectors:
        writer = VectorFolder(vectors, texts)
        yield writer
        writer.write_header()
