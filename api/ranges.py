"""The Range header of HTTP (RFC 9110, 14.2), as far as it pays: one range of bytes."""

import re

from tasks.errors import RangeNotSatisfiable

_ONE_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.IGNORECASE)


def byte_range(header: str | None, size: int) -> range | None:
    """The positions that are asked for of `size` bytes; None for all of them.

    Several ranges, other units and nonsense count as no range: a server may answer with the whole.

    Raises:
        RangeNotSatisfiable: it begins behind the end.
    """
    found = _ONE_RANGE.fullmatch(header) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        first, last = max(0, size - int(found[2])), size - 1
    else:
        first, last = int(found[1]), min(int(found[2]) if found[2] else size - 1, size - 1)
        if found[2] and int(found[2]) < first:
            return None
    if first >= size:
        raise RangeNotSatisfiable(f"The file has {size} bytes; the Range header asks for none of them.")
    return range(first, last + 1)
