"""Micro-batches: which texts share a forward pass, and which of them share a row of it. Pure.

A pass of one row for each text computes as much for every text as for its longest one. Claims of texts for which
somebody waits are small, so sorting helps little: 32 queries would be two or three passes, padded by an eighth. In rows
of one width only the ends of rows are padded, passes are full, and they have few different shapes.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tasks.encoder.interface import Layout
from tasks.pieces import pieces

PASSES_PER_BUDGET = 16
"""Starting a forward pass is taken to cost a sixteenth of a full one: of 1,024 tokens 64, and 61 were measured with
OpenVINO (4.2 ms and 0.068 ms for each padded token). With a thirty-second a claim of 64 passages takes twice the
passes; with an eighth it is padded by an eighth instead of a sixteenth."""
ROW_WIDTHS = (64, 256)
"""Of rows that texts share, in tokens: queries share narrow ones, passages wide ones. Queries fill wide rows no better,
and attention computes more of what the mask throws away: in rows of 128 and 256, claims of 16 took 1.19 and 1.24 times
as long. Wide ones pay in bfloat16 alone (beside a row for each passage claims of 21 took 0.92 of the time, in float32
1.02): `widths_for`."""


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """One forward pass. `indexes`: of its texts, in the order of `layout.starts`."""

    indexes: list[int]
    layout: Layout


def widths_for(precision: str) -> tuple[int, ...]:
    """Of the shared rows that pay where passes compute in this precision."""
    return ROW_WIDTHS if precision == "bfloat16" else ROW_WIDTHS[:1]


def plan(lengths: Sequence[int], max_padded_tokens: int, row_widths: Sequence[int] = ()) -> list[MicroBatch]:
    """The passes over texts of such lengths; every index occurs once. Equal input gives an equal plan.

    Texts share rows of the first of `row_widths`, which ascend, that takes them; shorter ones fill what is left of
    wider rows. A text above all of them, and one that would leave most of a wide row empty, has a row of its own. No
    pass computes more than `max_padded_tokens`, except that a single text above the budget is a pass of its own.
    """
    widths = [width for width in row_widths if width <= max_padded_tokens]
    left = [index for index, length in enumerate(lengths) if 0 < length <= max(widths, default=0)]
    sharing = set(left)
    own = [index for index in range(len(lengths)) if index not in sharing]
    batches: list[MicroBatch] = []
    for narrower, width in reversed(list(pairwise((0, *widths)))):
        rows = [[left[i] for i in row] for row in fill([lengths[i] for i in left], width, opens_above=narrower)]
        if narrower:
            own += [row[0] for row in rows if len(row) == 1]
            rows = [row for row in rows if len(row) > 1]
            placed = {index for row in rows for index in row} | set(own)
            left = [index for index in left if index not in placed]
        batches += _of_rows(rows, lengths, width, max_padded_tokens)
    return _of_own_rows(own, lengths, max_padded_tokens) + batches


def own_rows(indexes: list[int], lengths: Sequence[int]) -> MicroBatch:
    """A pass of one row for each text."""
    longest = max(lengths[i] for i in indexes)  # of a static model 0 may be the longest
    return MicroBatch(indexes, Layout(len(indexes), longest, longest * np.arange(len(indexes))))


def fill(lengths: Sequence[int], width: int, *, opens_above: int = 0) -> list[list[int]]:
    """Rows of indexes into `lengths`, each of `width` tokens at most; every index occurs once at most.

    The longest text comes first, into the row that it fills best.

    Args:
        lengths: in tokens, each from 1 to `width`.
        width: of a row.
        opens_above: texts of up to so many tokens only take what others leave of their rows. Where that is too little,
            they are left out.
    """
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # what is left of each row, ascending
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        place = bisect_left(free, (length,))
        if place < len(free):
            left, row = free.pop(place)
        elif length <= opens_above:
            continue
        else:
            left, row = width, len(rows)
            rows.append([])
        rows[row].append(index)
        insort(free, (left - length, row))
    return rows


def _of_own_rows(indexes: Sequence[int], lengths: Sequence[int], max_padded_tokens: int) -> list[MicroBatch]:
    """Texts are taken longest first, so that neighbours in a pass have nearly the same length.

    A pass ends early where the padding saved is worth another pass: one long passage must not make passages of all the
    queries beside it.
    """
    pass_cost = max_padded_tokens / PASSES_PER_BUDGET
    batches: list[list[int]] = []
    longest = capacity = 0
    for position, index in enumerate(sorted(indexes, key=lambda i: -lengths[i])):
        free = capacity - len(batches[-1]) if batches else 0
        would_join = min(free, len(indexes) - position)
        if free > 0 and (longest - lengths[index]) * would_join <= pass_cost:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = lengths[index]
            capacity = max_padded_tokens // max(longest, 1)
    return [own_rows(batch, lengths) for batch in batches]


def _of_rows(rows: Sequence[list[int]], lengths: Sequence[int], width: int, max_padded_tokens: int) -> list[MicroBatch]:
    """Passes of at most the budget, and of about as many rows each."""
    if not rows:
        return []
    number = -(-len(rows) // (max_padded_tokens // width))
    return [_of_one_pass(some, lengths, width) for some in pieces(rows, -(-len(rows) // number))]


def _of_one_pass(rows: Sequence[list[int]], lengths: Sequence[int], width: int) -> MicroBatch:
    """Shared rows, or where they compute no less a row for each text."""
    indexes = [index for row in rows for index in row]
    alone = own_rows(indexes, lengths)
    if alone.layout.padded_tokens <= len(rows) * width:
        return alone
    starts = []
    for number, row in enumerate(rows):
        at = number * width
        for index in row:
            starts.append(at)
            at += lengths[index]
    return MicroBatch(indexes, Layout(len(rows), width, np.array(starts, dtype=np.int64), shared=True))
