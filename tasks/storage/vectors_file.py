"""Vectors: stored objects with those of the rows that were encoded together for one job.

An object has for each piece a head of JSON behind its length (u32), which says of its rows what is not a vector,
then the vectors of all of them (float32), all little-endian. What a piece commits is a `VectorsReference`.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import orjson

from tasks.errors import NotStored
from tasks.item import TextError, Vector
from tasks.storage.rows_file import RowsReference
from tasks.storage.storage import Storage

_LENGTH = struct.Struct("<I")
_FLOAT32 = np.dtype("<f4")
_FENCE_DIGITS = 16


@dataclass(frozen=True, slots=True)
class VectorsReference:
    """Where the rows of one committed piece are: `size` bytes of the object `vectors`, from byte `at` on.

    `revision`: of the model that made its vectors; "" when its worker did not say.
    """

    vectors: str
    at: int
    size: int
    revision: str = ""

    def to_json(self) -> bytes:
        """As committed."""
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Inverse of `to_json`."""
        return cls(**orjson.loads(data))


def fence(token: str) -> str:
    """16 hexadecimal digits of a claim's token: part of the name of whatever that claim writes into the storage.

    A worker that has lost its claim without knowing can leave an object that nothing names. It never replaces what
    another one wrote.
    """
    return hashlib.sha256(token.encode()).hexdigest()[:_FENCE_DIGITS]


def vectors_name(rows: RowsReference, run: str) -> str:
    """Stored name of what `run`, a portion of a claim, writes for the job of these rows."""
    return f"{rows.folder}/vectors.{fence(run)}"


class VectorsWriter:
    """Writes vectors: `with storage.writing(name) as file: VectorsWriter(name, file.write, revision)`."""

    def __init__(self, name: str, write: Callable[[bytes], object], revision: str) -> None:
        self._name = name
        self._revision = revision
        self._write = write
        self._size = 0

    def add(self, vectors: Sequence[Vector]) -> VectorsReference:
        """Writes what became of the rows of one piece; where that is."""
        at = self._size
        numbers = [np.ascontiguousarray(row.vector, _FLOAT32).data for row in vectors if row.vector is not None]
        data = b"".join((*_head(vectors), *numbers))
        self._write(data)
        self._size += len(data)
        return VectorsReference(self._name, at, len(data), self._revision)


def read_vectors(storage: Storage, reference: VectorsReference) -> list[Vector]:
    """What became of the rows of one committed piece. One ranged read.

    Raises:
        NotStored: the object is not there, shorter than the reference says, or damaged.
        StorageUnavailable: the storage does not answer.
    """
    data = storage.read(reference.vectors, reference.at, reference.size)
    if len(data) != reference.size:
        raise NotStored(f"{reference.vectors} is shorter than what was committed.")
    try:
        return _vectors(data)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:  # whatever the bytes are now
        raise NotStored(f"{reference.vectors} is damaged.") from error


def _head(vectors: Sequence[Vector]) -> tuple[bytes, bytes]:
    head = orjson.dumps(
        {
            "dimensions": [0 if row.vector is None else len(row.vector) for row in vectors],
            "tokens": [row.tokens for row in vectors],
            "truncated": [at for at, row in enumerate(vectors) if row.truncated],
            "errors": {str(at): row.error for at, row in enumerate(vectors) if row.error is not None},
        }
    )
    return _LENGTH.pack(len(head)), head


def _vectors(data: bytes) -> list[Vector]:
    """Raises whatever a head without sense leads to, and `ValueError` where it is not as many numbers as it says."""
    end = _LENGTH.size + int(_LENGTH.unpack_from(data)[0])
    head = orjson.loads(data[_LENGTH.size : end])
    numbers = np.frombuffer(data, _FLOAT32, offset=end).copy()  # aligned
    errors = {int(at): TextError(**error) for at, error in head["errors"].items()}
    truncated = frozenset(head["truncated"])
    vectors, at = list[Vector](), 0
    for row, (dimension, tokens) in enumerate(zip(head["dimensions"], head["tokens"], strict=True)):
        vector = numbers[at : at + dimension] if dimension else None
        at += dimension
        vectors.append(Vector(vector, tokens, row in truncated, None if dimension else errors[row]))
    if at != len(numbers):
        raise ValueError("not as many numbers as its head says")
    return vectors
