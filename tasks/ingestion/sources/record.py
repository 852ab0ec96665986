"""A record as the sandbox finds it, and what it answers."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import orjson

from tasks.document_error import DocumentFailed
from tasks.ingestion.sources.field_mapping import Described

Request: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = tuple[dict[str, Any], bytes]

LIMIT_SETTING = "EMBEDQ_INGEST_MAX_RECORD_BYTES"


class Record(NamedTuple):
    """Where it begins, its length, its number, and what is in it."""

    start: int
    length: int
    number: int
    described: Described

    def to_json(self) -> bytes:
        """As a list; the worker reads it in `source.py`."""
        described = self.described
        code, message = described.error or ("", "")
        values = (*self[:3], described.id, described.text, described.metadata, code, message, described.named)
        return orjson.dumps(values)


def range_of(start: int, length: int = 0, numbers: int = 0, count: int = 0, *, skip: bool = False) -> dict[str, Any]:
    """The answer to `cut`."""
    return {"start": start, "length": length, "numbers": numbers, "records": count, "skip": skip}


def bad(code: str, message: str) -> Described:
    """A record that cannot be read."""
    return Described(error=(code, message))


def refused(code: str, message: str) -> DocumentFailed:
    """The error of a file that cannot be."""
    return DocumentFailed(code, message, "reading")
