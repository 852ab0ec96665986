"""Parts: stored objects with the vectors of the rows that were encoded together for one task.

A part is a sequence of units, each a head of JSON behind its length (u32), which says of its rows what is not a vector,
then the vectors of all of them (float32), all little-endian. What a unit commits is a `PartReference` to its own.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import orjson

from tasks.errors import NotStored
from tasks.storage.row_file import UnitReference
from tasks.storage.storage import Storage

_LENGTH = struct.Struct("<I")
_FLOAT32 = np.dtype("<f4")
_FENCE_DIGITS = 16


@dataclass(frozen=True, slots=True)
class RowError:
    """Why a row has no vectors: what the synchronous call would have answered for its body.

    `status` is the HTTP status; `message` holds no text of the row.
    """

    code: str
    message: str
    status: int
    param: str | None = None


class RowOutcome(NamedTuple):
    """What became of one row: one vector for each of its inputs, or an error.

    Attributes:
        vectors: float32 [inputs, dimension]; [0, 0] when there is an error.
        tokens: that went through the model; 0 when there is an error.
        truncated: indexes of the inputs that were cut at the model's maximum.
    """

    vectors: npt.NDArray[np.float32]
    tokens: int
    truncated: tuple[int, ...] = ()
    error: RowError | None = None

    @classmethod
    def failed(cls, error: RowError) -> Self:
        """A row without vectors."""
        return cls(vectors=np.empty((0, 0), dtype=np.float32), tokens=0, error=error)


@dataclass(frozen=True, slots=True)
class PartReference:
    """Where the rows of one committed unit are: `size` bytes of the object `part`, from byte `at` on.

    `revision`: of the model that made its vectors; "" when its worker did not say.
    """

    part: str
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


def part_name(reference: UnitReference, run: str) -> str:
    """Stored name of the part that `run`, a portion of a claim, writes for the task of `reference`."""
    return f"{reference.folder}/parts/{fence(run)}"


class PartWriter:
    """Writes a part: `with storage.writing(name) as file: part = PartWriter(name, file.write, revision)`."""

    def __init__(self, name: str, write: Callable[[bytes], object], revision: str) -> None:
        self._name = name
        self._revision = revision
        self._write = write
        self._size = 0

    def add(self, rows: Sequence[RowOutcome]) -> PartReference:
        """Writes the rows of one unit; where they are."""
        at = self._size
        vectors = [np.ascontiguousarray(row.vectors, _FLOAT32).data for row in rows]
        data = b"".join((*_head(rows), *vectors))
        self._write(data)
        self._size += len(data)
        return PartReference(self._name, at, len(data), self._revision)


def read_part(storage: Storage, reference: PartReference) -> list[RowOutcome]:
    """The rows of one committed unit. One ranged read.

    Raises:
        NotStored: the part is not there, shorter than the reference says, or damaged.
        StorageUnavailable: the storage does not answer.
    """
    data = storage.read(reference.part, reference.at, reference.size)
    if len(data) != reference.size:
        raise NotStored(f"{reference.part} is shorter than what was committed.")
    try:
        return _rows(data)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:  # whatever the bytes are now
        raise NotStored(f"{reference.part} is damaged.") from error


def _head(rows: Sequence[RowOutcome]) -> tuple[bytes, bytes]:
    head = orjson.dumps(
        {
            "rows": [(*row.vectors.shape, row.tokens) for row in rows],
            "truncated": {str(at): row.truncated for at, row in enumerate(rows) if row.truncated},
            "errors": {str(at): row.error for at, row in enumerate(rows) if row.error is not None},
        }
    )
    return _LENGTH.pack(len(head)), head


def _rows(data: bytes) -> list[RowOutcome]:
    end = _LENGTH.size + int(_LENGTH.unpack_from(data)[0])
    head = orjson.loads(data[_LENGTH.size : end])
    numbers = np.frombuffer(data, _FLOAT32, offset=end).copy()  # aligned
    errors = {int(at): RowError(**error) for at, error in head["errors"].items()}
    truncated = {int(at): tuple(inputs) for at, inputs in head["truncated"].items()}
    vectors = _vectors(numbers, [(inputs, dimension) for inputs, dimension, _ in head["rows"]])
    return [
        RowOutcome(own, row[2], truncated.get(at, ()), errors.get(at))
        for at, (own, row) in enumerate(zip(vectors, head["rows"], strict=True))
    ]


def _vectors(numbers: npt.NDArray[np.float32], shapes: Sequence[tuple[int, int]]) -> Sequence[npt.NDArray[np.float32]]:
    """Those of each row; raises `ValueError` where there are more numbers or fewer."""
    if len(set(shapes)) == 1:
        return list(numbers.reshape(len(shapes), *shapes[0]))
    ends = np.cumsum([inputs * dimension for inputs, dimension in shapes], dtype=np.int64)
    *parts, rest = np.split(numbers, ends)
    if len(rest):
        raise ValueError("more vectors than its head says")
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
