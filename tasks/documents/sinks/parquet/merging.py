"""Which small parts of a dataset are to become one: loads of a few documents would make thousands."""

from collections.abc import Sequence

from tasks.ledger.datasets import Part

FULL = 8192
"""Rows of a part that stays as it is; documents count as rows, and so do 8 KiB of it, which makes 64 MiB."""
BESIDE = 4
"""Parts of like size, within a factor of four, that stay side by side."""

_ROW_BYTES = 8192


def to_merge(parts: Sequence[Part]) -> list[Part]:
    """The parts that the next merge takes, together twice as large as a full one at most; [] if there are few enough.

    A row is written again about seven times until its part is full, and there are at most 28 parts besides full ones,
    once merges have caught up.
    """
    classes: dict[int, list[Part]] = {}
    for part in parts:
        if _weight(part) < FULL:
            classes.setdefault(_weight(part).bit_length() // 2, []).append(part)
    crowded = [size for size, alike in classes.items() if len(alike) > BESIDE]
    if not crowded:
        return []
    left = 2 * FULL
    taken = []
    for part in classes[min(crowded)]:
        left -= _weight(part)
        if left < 0:
            break
        taken.append(part)
    return taken


def _weight(part: Part) -> int:
    return max(1, part.rows, part.documents, part.size_bytes // _ROW_BYTES)
