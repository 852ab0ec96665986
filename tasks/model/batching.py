"""Cuts texts into micro-batches under a padded-token budget. Pure."""

from collections.abc import Sequence


def plan(lengths: Sequence[int], max_padded_tokens: int) -> list[list[int]]:
    """Micro-batches as lists of indexes into `lengths`; every index occurs once.

    Texts are taken longest first, so that neighbours in a batch have nearly the same length and little is padding.
    The longest length of a batch times its number of texts stays within `max_padded_tokens`, except that a single text
    above the budget is a batch of its own. Equal input gives an equal plan.
    """
    batches: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and longest * (len(batches[-1]) + 1) <= max_padded_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest = lengths[index]
    return batches
