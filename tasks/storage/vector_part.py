"""Parts: stored objects with the vectors of the rows that were encoded together for one task.

A part is a sequence of rows, each a header of JSON behind its length (u32), then the vectors (float32), all
little-endian. What a unit commits is a `PartReference` to its own rows, in their order.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import orjson

from tasks.errors import NotStored
from tasks.item import FLOAT32_BYTES
from tasks.storage.row_file import UnitReference
from tasks.storage.storage import Storage

_LENGTH = struct.Struct("<I")
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


@dataclass(frozen=True, slots=True, eq=False)
class RowOutcome:
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

    def add(self, rows: Iterable[RowOutcome]) -> PartReference:
        """Writes the rows of one unit; where they are."""
        at = self._size
        for row in rows:
            data = _row_bytes(row)
            self._write(data)
            self._size += len(data)
        return PartReference(self._name, at, self._size - at, self._revision)


def read_part(storage: Storage, reference: PartReference) -> list[RowOutcome]:
    """The rows of one committed unit. One ranged read.

    Raises:
        NotStored: the part is not there, shorter than the reference says, or damaged.
        StorageUnavailable: the storage does not answer.
    """
    data = storage.read(reference.part, reference.at, reference.size)
    if len(data) != reference.size:
        raise NotStored(f"{reference.part} is shorter than what was committed.")
    rows, at = [], 0
    try:
        while at < len(data):
            row, at = _row(data, at)
            rows.append(row)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:  # whatever the bytes are now
        raise NotStored(f"{reference.part} is damaged.") from error
    return rows


def _row_bytes(row: RowOutcome) -> bytes:
    n, d = row.vectors.shape
    header = orjson.dumps(
        {"n": n, "d": d, "tokens": row.tokens, "truncated": list(row.truncated), "error": row.error},
    )
    return b"".join((_LENGTH.pack(len(header)), header, row.vectors.astype("<f4", copy=False).tobytes()))


def _row(data: bytes, at: int) -> tuple[RowOutcome, int]:
    start = at + _LENGTH.size
    end = start + int(_LENGTH.unpack_from(data, at)[0])
    header = orjson.loads(data[start:end])
    n, d = header["n"], header["d"]
    vectors = np.frombuffer(data, dtype="<f4", count=n * d, offset=end).reshape(n, d).copy()  # aligned
    error = header["error"]
    row = RowOutcome(
        vectors, header["tokens"], tuple(header["truncated"]), None if error is None else RowError(**error)
    )
    return row, end + n * d * FLOAT32_BYTES
