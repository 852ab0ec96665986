"""How many lists, objects and fields a JSON text holds, before it is parsed.

Each takes a hundred bytes however short it is, and makes the parser hold the interpreter that much longer.
"""

import numpy as np

MAX_PARTS = 100_000
"""Of a body, or of one line of a batch."""
_BLOCK_BYTES = 2**18
_QUOTE, _LIST, _OBJECT, _FIELD = b'"[{:'


def has_more_parts(data: bytes, limit: int = MAX_PARTS) -> bool:
    """Whether `data` holds more than `limit` lists, objects and fields. What stands in strings does not count."""
    if len(data) <= limit or data.count(b"[") + data.count(b"{") + data.count(b":") <= limit:
        return False
    return _outside_of_strings(data) > limit


def _outside_of_strings(data: bytes) -> int:
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, inside = 0, 0
    for start in range(0, len(bare), _BLOCK_BYTES):
        block = np.frombuffer(bare, np.uint8, min(_BLOCK_BYTES, len(bare) - start), start)
        # Its lowest bit tells whether a byte is in a string; that the sum runs over does no harm.
        quotes = np.cumsum(block == _QUOTE, dtype=np.uint8) + np.uint8(inside)
        parts = (block == _LIST) | (block == _OBJECT) | (block == _FIELD)
        count += int(np.count_nonzero(parts & (quotes & 1 == 0)))
        inside = int(quotes[-1]) & 1
    return count
