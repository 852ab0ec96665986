"""Values that scripts pack with MessagePack: the record of a task, sums of queues and owners."""

from typing import Any

import msgpack

from tasks.ledger.scripts import SCRIPTS, constants

_RECORD_FIELDS = tuple(
    name.lower()
    for name, place in constants((SCRIPTS / "shared/task_record.lua").read_text()).items()
    if int(place) < 100  # noqa: PLR2004 - the others in that file are no places in a record
)
"""Their names stand there alone. New ones come at the end, so a record of an older version has fewer."""


def record_of(packed: bytes) -> dict[str, Any]:
    """The record of a task, by the names of its fields."""
    return dict(zip(_RECORD_FIELDS, msgpack.unpackb(packed), strict=False))


def numbers(packed: bytes | None) -> dict[str, Any]:
    """Sums by name; what is not there is 0, and of nothing nothing is there."""
    sums: dict[str, Any] = msgpack.unpackb(packed) if packed else {}
    return sums
