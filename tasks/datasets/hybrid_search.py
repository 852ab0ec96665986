"""Full text and vectors together, the same in both stores."""

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tasks.datasets.contents import Contents, Filter, Found

_DAMPING = 60
"""Of reciprocal rank fusion: Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009."""
_LOOKED_AT = 5
"""So many times the chunks that are wanted are taken of each ranking."""
_MOST_WORDS = 64
_WORD = re.compile(r"\w+")


def searched_words(text: str) -> list[str]:
    """The words of a text that full text looks for, each once."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))[:_MOST_WORDS]


def hybrid(
    contents: Contents,
    text: str,
    vector: npt.NDArray[np.floating],
    k: int,
    *,
    fields: Filter | None,
    stopping: Callable[[], bool],
) -> list[Found]:
    """The `k` best of both rankings, by reciprocal rank fusion; equal ones by their numbers. Raises as `Contents`."""
    scores: dict[int, float] = {}
    found: dict[int, Found] = {}
    for ranking in (
        contents.nearest(vector, _LOOKED_AT * k, fields, stopping),
        contents.words(text, _LOOKED_AT * k, fields, stopping),
    ):
        for rank, each in enumerate(ranking, 1):
            found[each.chunk.number] = each
            scores[each.chunk.number] = scores.get(each.chunk.number, 0.0) + 1 / (_DAMPING + rank)
    best = sorted(scores, key=lambda number: (-scores[number], number))[:k]
    return [found[number]._replace(score=scores[number]) for number in best]
