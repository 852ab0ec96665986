"""The messages between the worker and the process that reads Parquet: a header in JSON and a body of bytes.

The worker trusts no answer: a parser may have been taken over by what it read.
"""

import struct
from collections.abc import Mapping
from typing import Any, cast

import orjson

from tasks.ingestion.parsing.extracted import MAX_TEXT_CHARS

LENGTHS = struct.Struct(">IQ")
"""Lengths of header and body in bytes, in front of both."""
MAX_HEADER_BYTES = 64 * 2**20
MAX_BODY_BYTES = 4 * MAX_TEXT_CHARS


class ChildFailed(Exception):
    """The process did not answer a frame, or not with one; it has to be killed.

    Attributes:
        code: one of `refusals.BEYOND_LIMITS`.
    """

    def __init__(self, code: str = "parser_crashed") -> None:
        super().__init__(code)
        self.code = code


def frame(header: Mapping[str, Any], body: bytes = b"") -> list[bytes]:
    """The pieces to write; the body is not copied."""
    head = orjson.dumps(header)
    return [LENGTHS.pack(len(head), len(body)) + head, body]


def lengths(start: bytes) -> tuple[int, int]:
    """Of header and body, from the first bytes of an answer; raises ChildFailed when they are absurd."""
    header, body = LENGTHS.unpack(start)
    if header > MAX_HEADER_BYTES or body > MAX_BODY_BYTES:
        raise ChildFailed
    return header, body


def header_from_bytes(data: bytes) -> dict[str, Any]:
    """The header's values; raises ChildFailed."""
    try:
        header = orjson.loads(data)
    except ValueError:
        raise ChildFailed from None
    if not isinstance(header, dict):
        raise ChildFailed
    return cast("dict[str, Any]", header)
