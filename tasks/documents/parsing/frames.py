"""The messages between the worker and its parsing process: a header in JSON and a body of bytes.

The worker trusts no answer: a parser may have been taken over by what it read.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import orjson

from tasks.documents.parsing.parsed_document import MAX_BLOCKS, MAX_TEXT_CHARS, Block, BlockKind, Parsed

LENGTHS = struct.Struct(">IQ")
"""Lengths of header and body in bytes, in front of both."""
MAX_HEADER_BYTES = 64 * 2**20
MAX_BODY_BYTES = 4 * MAX_TEXT_CHARS

_KINDS: tuple[BlockKind, ...] = get_args(BlockKind)
_NUMBERS = 4
"""Of one block: kind, start, end, level."""


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


def frame_from_parsed(parsed: Parsed, *, spent: bool) -> list[bytes]:
    """A document, as pieces to write. `spent`: the process ends after it."""
    blocks = [n for block in parsed.blocks for n in (_KINDS.index(block.kind), block.start, block.end, block.level)]
    header = {"type": parsed.media_type, "title": parsed.title, "blocks": blocks, "pages": parsed.pages, "spent": spent}
    return frame(header, parsed.text.encode())


def parsed_from_frame(header: Mapping[str, Any], body: bytes) -> Parsed:
    """Inverse of `frame_from_parsed`.

    Raises:
        ChildFailed: it is not the answer of a parser.
    """
    try:
        text = body.decode()
        blocks = _blocks(header["blocks"], len(text))
        pages = tuple(int(page) for page in header["pages"])
        title = header["title"]
        media_type = str(header["type"])
    except (KeyError, TypeError, ValueError, IndexError):
        raise ChildFailed from None
    if any(not 0 <= page <= len(text) for page in pages) or not isinstance(title, str | None):
        raise ChildFailed
    return Parsed(text, blocks, pages, title, media_type)


def _blocks(numbers: Sequence[int], chars: int) -> tuple[Block, ...]:
    if len(numbers) % _NUMBERS or len(numbers) > _NUMBERS * 2 * MAX_BLOCKS:
        raise ChildFailed
    values = iter(numbers)
    blocks = tuple(
        Block(_KINDS[kind], start, end, level) for kind, start, end, level in zip(*[values] * _NUMBERS, strict=True)
    )
    position = 0
    for block in blocks:
        if not position <= block.start < block.end <= chars:
            raise ChildFailed
        position = block.end
    return blocks


def header_from_bytes(data: bytes) -> dict[str, Any]:
    """The header's values; raises ChildFailed."""
    try:
        header = orjson.loads(data)
    except ValueError:
        raise ChildFailed from None
    if not isinstance(header, dict):
        raise ChildFailed
    return cast("dict[str, Any]", header)
