"""Values that scripts pack with MessagePack: the record of a task, sums of queues and owners.

The names of a record's fields stand once, in `lua/shared/task_record.lua`, and are read from there. Redis's cmsgpack
writes whole numbers as integers, other ones as doubles, and text as text.
"""

import struct
from typing import Any

from tasks.ledger.scripts import SCRIPTS, constants

RECORD_FIELDS = tuple(name.lower() for name in constants((SCRIPTS / "shared/task_record.lua").read_text()))
"""Of a task's record, in their order. New ones come at its end, so a record of an older version may have fewer."""

_NUMBERS = {
    **{0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"},
    **{0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"},
}
_LENGTHS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
_NIL, _FALSE, _TRUE = 0xC0, 0xC2, 0xC3


def unpacked(data: bytes) -> Any:
    """The value of a text that a script has packed: a number, a `str`, a list or a dict."""
    return _read(data, 0)[0]


def record_of(data: bytes) -> dict[str, Any]:
    """The record of a task, by the names of its fields."""
    return dict(zip(RECORD_FIELDS, unpacked(data), strict=False))


def numbers(data: bytes | None) -> dict[str, float]:
    """Sums by name; what is not there is 0, and of nothing nothing is there."""
    read: dict[str, float] = unpacked(data) if data else {}
    return read


def _read(data: bytes, at: int) -> tuple[Any, int]:
    kind, at = data[at], at + 1
    if kind < 0x80 or kind >= 0xE0:
        return kind if kind < 0x80 else kind - 0x100, at
    if kind in _NUMBERS:
        form = _NUMBERS[kind]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if kind in {_NIL, _FALSE, _TRUE}:
        return {_FALSE: False, _TRUE: True}.get(kind), at
    if form := _LENGTHS.get(kind, ""):
        size = struct.unpack_from(form, data, at)[0]
        at += struct.calcsize(form)
    else:  # the length is in the first byte
        size = kind & (0x1F if kind >= 0xA0 else 0x0F)  # noqa: PLR2004 - see the format
    if 0xA0 <= kind < 0xC0 or 0xD9 <= kind <= 0xDB:  # noqa: PLR2004
        return data[at : at + size].decode(), at + size
    is_map = kind < 0x90 or kind >= 0xDE  # noqa: PLR2004
    values = []
    for _ in range(2 * size if is_map else size):
        value, at = _read(data, at)
        values.append(value)
    return dict(zip(values[::2], values[1::2], strict=True)) if is_map else values, at
