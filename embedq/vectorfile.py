"""Writes a `.npy` file row by row, when nobody knows yet how many there will be."""

import os
from typing import BinaryIO

import numpy as np
import numpy.typing as npt


class VectorFile:
    """A float32 [n, dimension] array in the making. Call `finish` after the last row.

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
            ValueError: the rows are not as long as those before.
        """
        count, width = vectors.shape
        if width and self._dimension is None:
            self._dimension = width
            self._write_header()
            self._write_missing(self.rows)
        if width and width != self._dimension:
            raise ValueError(f"rows of {width} numbers after rows of {self._dimension}: the model has changed")
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
