"""Rows by reference: texts in lines of a stored JSONL file. A piece of a task says where its lines are.

So Redis stays small whatever the file's size, and nothing beside the file is needed to find a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import orjson

from tasks.errors import NotStored
from tasks.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class RowsReference:
    """The rows of a piece: the lines in `size` bytes of the object `rows`, from byte `at` on."""

    rows: str
    at: int
    size: int

    def to_payload(self) -> bytes:
        """As the payload of a `NewPiece`."""
        return orjson.dumps(self)

    @classmethod
    def from_payload(cls, payload: bytes) -> Self | None:
        """Inverse of `to_payload`; None for a payload that is a JSON array of texts."""
        return cls(**orjson.loads(payload)) if payload.startswith(b"{") else None

    @property
    def folder(self) -> str:
        """The folder of the job, without a "/" at its end. What workers write goes into it."""
        return self.rows.rpartition("/")[0]


def row_of(text: str, options: Mapping[str, Any], **kept: Any) -> bytes:
    """A row, without a line break: one text, and what is asked of its vector. `kept` is for whoever writes the row.

    `options` has fields of `Options`, and `input_type`; those that are left out have their defaults.
    """
    return orjson.dumps({"text": text, "options": options, **kept})


def read_rows(storage: Storage, rows: RowsReference, offset: int, count: int) -> list[bytes]:
    """`count` lines of a piece, from its row `offset` on. One ranged read.

    Raises:
        NotStored: they are not there, or the object is shorter.
        StorageUnavailable: the storage does not answer.
    """
    data = storage.read(rows.rows, rows.at, rows.size)
    lines = data.split(b"\n")[offset : offset + count]
    if len(data) != rows.size or len(lines) != count:
        raise NotStored(f"{rows.rows} ends before these rows.")
    return lines
