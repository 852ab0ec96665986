"""Micro-batches: which texts share a forward pass, and how many padded tokens one may have. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tasks.model.packing import fill, layout
from tasks.pieces import pieces

PASSES_PER_BUDGET = 16
"""Starting a forward pass is taken to cost a sixteenth of a full one: of 1,024 tokens 64, and 61 were measured with
OpenVINO where every pass has a shape of its own (4.2 ms and 0.068 ms for each padded token). With a thirty-second a
claim of 64 passages takes twice the passes; with an eighth it is padded by an eighth instead of a sixteenth."""

CPU_TOKENS = 1024
"""Padded tokens of one pass on a CPU. Small, so that its activations stay in the cache. Processor time beside this
budget, passages and queries: 512 1.04 and 1.13, 2,048 0.93 to 1.02 and 1.01 to 1.15, 4,096 1.09 and 1.25, 8,192 1.18
and 1.49. Of the two that are level the smaller one, because urgent texts wait for the end of a pass. With two streams
of one thread, passages per second: 512 152 to 158, 768 161 to 169, 1,024 166 to 175, 1,536 168 to 179, 2,048 167 to
175."""

URGENT_WAIT_S = 0.08
"""A pass of work that stops for urgent texts should not take longer, as they wait for its end. Two in a row are well
within the 200 ms that a query may take beside bulk work, on a machine of any speed."""
QUIET_WAIT_S = 2 * URGENT_WAIT_S
"""The same while nobody sends urgent texts: the first one waits once. On a processor where a pass of 512 tokens takes
0.08 s, bulk work with 1,024 is 2 to 5 % faster."""
_LEAST_TOKENS = 512
"""With fewer, the texts of a pass differ more in length, and it costs more than it takes off a wait."""


def plan(lengths: Sequence[int], max_padded_tokens: int, row_widths: Sequence[int] = ()) -> list[list[int]]:
    """Micro-batches as lists of indexes into `lengths`; every index occurs once. Equal input gives an equal plan.

    Texts share rows of the first of `row_widths`, which ascend, that takes them; shorter ones fill what is left of such
    rows. Texts above all of them have a row each. Where the widest rows do not pay, they are not used: a row of 256
    tokens holds one text of 140, and four such rows are half a pass. No batch computes more than `max_padded_tokens`,
    as `layout` never computes more than these rows would; except that a single text above the budget is a batch of its
    own.
    """
    widths = [width for width in row_widths if width <= max_padded_tokens]
    batches, narrower = _in_rows(lengths, max_padded_tokens, widths), widths[:-1]
    if not narrower or not any(narrower[-1] < length <= widths[-1] for length in lengths):
        return batches

    def cost(batches: Sequence[Sequence[int]]) -> float:
        computed = [layout([lengths[i] for i in batch], tuple(row_widths)).padded_tokens for batch in batches]
        # `layout` may prefer wide rows, of a usual shape, to rows that were just within the budget.
        if any(len(batch) > 1 and tokens > max_padded_tokens for batch, tokens in zip(batches, computed, strict=True)):
            return math.inf
        return sum(computed) + len(batches) * max_padded_tokens / PASSES_PER_BUDGET

    return min(batches, _in_rows(lengths, max_padded_tokens, narrower), key=cost)


def _in_rows(lengths: Sequence[int], max_padded_tokens: int, widths: Sequence[int]) -> list[list[int]]:
    shared = [index for index, length in enumerate(lengths) if 0 < length <= max(widths, default=0)]
    sharing = set(shared)
    own = [index for index in range(len(lengths)) if index not in sharing]
    batches = _in_own_rows(own, lengths, max_padded_tokens)
    for narrower, width in reversed(list(pairwise((0, *widths)))):
        rows = [[shared[i] for i in row] for row in fill([lengths[i] for i in shared], width, opens_above=narrower)]
        batches += _together(rows, max_padded_tokens // width)
        placed = {index for row in rows for index in row}
        shared = [index for index in shared if index not in placed]
    return batches


def _in_own_rows(indexes: Sequence[int], lengths: Sequence[int], max_padded_tokens: int) -> list[list[int]]:
    """Texts are taken longest first, so that neighbours in a batch have nearly the same length.

    The longest length of a batch times its number of texts stays within `max_padded_tokens`. A batch ends early where
    the padding saved is worth another pass: one long passage must not make passages of all the queries beside it.
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
    return batches


def _together(rows: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """Batches of at most so many rows, and of about as many each."""
    if not rows:
        return []
    batches = -(-len(rows) // most)
    return [[index for row in batch for index in row] for batch in pieces(rows, -(-len(rows) // batches))]


@dataclass(frozen=True, slots=True)
class PassBudget:
    """Padded tokens of one pass.

    Attributes:
        most: what suits the device (`tasks.embedding.speed.budget_for`), or what its operator set.
        bounded: whether a pass of work that stops for urgent texts should not take long.
        ahead: passes between two looks at urgent texts, which wait for all of them.
    """

    most: int
    bounded: bool = False
    ahead: int = 1

    def interrupted(self, tokens_per_s: float, *, urgent: bool) -> int:
        """Of work that stops for urgent texts, on a stream of this speed. `urgent`: such texts are to be expected."""
        if not self.bounded:
            return self.most
        wait_s = (URGENT_WAIT_S if urgent else QUIET_WAIT_S) / self.ahead
        return min(self.most, max(_LEAST_TOKENS, int(tokens_per_s * wait_s)))
