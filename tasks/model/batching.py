"""Cuts texts into micro-batches under a padded-token budget. Pure."""

from collections.abc import Sequence

PASSES_PER_BUDGET = 16
"""Starting a forward pass is taken to cost a sixteenth of a full one: of 1,024 tokens 64, and 61 were measured with
OpenVINO where every pass has a shape of its own (4.2 ms and 0.068 ms for each padded token). With a thirty-second a
claim of 64 passages takes twice the passes; with an eighth it is padded by an eighth instead of a sixteenth."""


def plan(lengths: Sequence[int], max_padded_tokens: int) -> list[list[int]]:
    """Micro-batches as lists of indexes into `lengths`; every index occurs once.

    Texts are taken longest first, so that neighbours in a batch have nearly the same length. The longest length of a
    batch times its number of texts stays within `max_padded_tokens`, except that a single text above the budget is a
    batch of its own. A batch ends early where the padding saved is worth another pass: one long passage must not make
    passages of all the queries beside it. Equal input gives an equal plan.
    """
    pass_cost = max_padded_tokens / PASSES_PER_BUDGET
    batches: list[list[int]] = []
    longest = capacity = 0
    for position, index in enumerate(sorted(range(len(lengths)), key=lambda i: -lengths[i])):
        free = capacity - len(batches[-1]) if batches else 0
        would_join = min(free, len(lengths) - position)
        if free > 0 and (longest - lengths[index]) * would_join <= pass_cost:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = lengths[index]
            capacity = max_padded_tokens // max(longest, 1)
    return batches
