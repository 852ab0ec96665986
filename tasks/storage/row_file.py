"""Rows by reference: texts in lines of a stored JSONL file, found through an index of their places.

A piece of a batch holds no texts but a `RowReference`, so Redis stays small whatever the file's size. The index is a
stored object of 12 bytes per row, written when the file was checked: offset (u64) and length (u32) of the line without
its line break, little-endian. Rows count from 0.
"""

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import orjson

from tasks.errors import NotStored
from tasks.storage.storage import Storage, Writer

_ENTRY = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class RowReference:
    """Which rows a piece of an embed task means: as many as it has items, from row `first` of the file on.

    Attributes:
        source: stored name of the input file.
        index: stored name of its index; what the piece's workers write goes into the same folder.
    """

    source: str
    index: str
    first: int

    def to_payload(self) -> bytes:
        """As the payload of a `NewPiece`."""
        return orjson.dumps(self)

    @classmethod
    def from_payload(cls, payload: bytes) -> Self | None:
        """Inverse of `to_payload`; None for a payload that is a JSON array of texts."""
        if not payload.startswith(b"{"):
            return None
        fields = orjson.loads(payload)
        return cls(source=fields["source"], index=fields["index"], first=fields["first"])

    @property
    def folder(self) -> str:
        """The stored folder of the batch, without a "/" at its end."""
        return self.index.rpartition("/")[0]


def row_of(text: str, options: Mapping[str, Any], **kept: Any) -> bytes:
    """A row, without a line break: one text, and what is asked of its vector. `kept` is for whoever writes the row.

    `options` has fields of `Options`, and `input_type`; those that are left out have their defaults.
    """
    return orjson.dumps({"text": text, "options": options, **kept})


_HELD_BYTES = 256 * 1024


class RowFileWriter:
    """Writes rows and their index; `rows` says how many there are so far."""

    def __init__(self, source: Writer, index: Writer) -> None:
        self._source = source
        self._index = index
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.rows = 0

    def add(self, row: bytes) -> None:
        """The next row, without a line break. Raises like `Writer.write`."""
        self.rows += 1
        self._held.append(row)
        self._held_bytes += len(row)
        if self._held_bytes >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is held. Raises like `Writer.write`."""
        if self._held:
            lengths = list(map(len, self._held))
            offsets = accumulate((length + 1 for length in lengths[:-1]), initial=self._source.size_bytes)
            self._index.write(b"".join(map(_ENTRY.pack, offsets, lengths)))
            self._source.write(b"\n".join(self._held) + b"\n")
            self._held, self._held_bytes = [], 0


@contextmanager
def writing_rows(storage: Storage, source: str, index: str) -> Iterator[RowFileWriter]:
    """Stores rows and their index under these names; raises like `Storage.writing`."""
    with storage.writing(source) as lines, storage.writing(index) as places:
        rows = RowFileWriter(lines, places)
        yield rows
        rows.flush()


class Places:
    """Where rows of a source are, as their index says. Its entries stay packed: a large document has many rows.

    Raises:
        NotStored: there is no such index, or it has not so many rows.
        StorageUnavailable: the storage does not answer.
    """

    def __init__(self, storage: Storage, index: str, first: int, count: int) -> None:
        self._storage = storage
        self._first = first
        self._entries = storage.read(index, first * _ENTRY.size, count * _ENTRY.size)
        if len(self._entries) != count * _ENTRY.size:
            raise NotStored(f"{index} ends before row {first + count}.")

    def rows(self, source: str, first: int, count: int) -> list[bytes]:
        """`count` lines of the source, from row `first` of the file on. One ranged read.

        Raises:
            NotStored: the source is not there, or is shorter than the index says.
            StorageUnavailable: the storage does not answer.
        """
        if count == 0:
            return []
        at = (first - self._first) * _ENTRY.size
        places = list(_ENTRY.iter_unpack(self._entries[at : at + count * _ENTRY.size]))
        start = places[0][0]
        end = sum(places[-1])
        data = self._storage.read(source, start, end - start)
        if len(data) != end - start:
            raise NotStored(f"{source} ends before row {first + count}.")
        return [data[offset - start : offset - start + length] for offset, length in places]


def read_rows(storage: Storage, reference: RowReference, first: int, count: int) -> list[bytes]:
    """`count` lines of the source, from row `first` of the file on. One ranged read of the index, one of the source.

    Raises like `Places` and its `rows`.
    """
    return Places(storage, reference.index, first, count).rows(reference.source, first, count) if count else []
