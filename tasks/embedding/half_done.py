"""Suspects that take longer than a turn, such as lines of a batch with thousands of texts: their vectors so far.

Nobody else touches a text while a suspect is encoded. So a long one is given back when its turn is over, attempt
refunded, and goes on where it was when this process claims it again: the ledger never sees one in company.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tasks.encoder.interface import EncodeStats, Text, Vector
from tasks.pieces import weighed

Encode: TypeAlias = Callable[[Sequence[Text]], tuple[Sequence[Vector], EncodeStats]]

LONGEST_S = 0.5
"""So long a suspect is encoded at a time, and for one pass more. Each time it is claimed and its row is read anew."""
MOST = 16
"""Suspects that are kept, each a few megabytes. The next one runs to its end, or they would push each
other out and none would ever be done."""
FORGET_AFTER_S = 600.0
"""Since its last turn: another worker has done it, or its task was cancelled."""


@dataclass(slots=True)
class _Partial:
    vectors: dict[Text, Vector] = field(default_factory=dict)
    stats: EncodeStats = field(default_factory=lambda: EncodeStats(0, 0, 0))
    left_at: float = 0.0


class TurnOver(Exception):
    """Not an error: the suspect is to be given back."""


class HalfDone:
    """The suspects of one process that are not done yet. Not for two threads at once: one suspect runs at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parts: dict[tuple[str, str], _Partial] = {}

    def encode(
        self,
        name: tuple[str, str],
        items: Sequence[Text],
        encode: Encode,
        *,
        weight: Callable[[Text], int],
        most: int,
    ) -> tuple[list[Vector], EncodeStats]:
        """One outcome per item, and what they took in all turns.

        Args:
            name: of the suspect, its task and unit.
            items: its texts.
            encode: encodes some of them.
            weight: of one.
            most: so much they weigh that are encoded together; afterwards the turn may be over.

        Raises:
            TurnOver: what is done until now is kept.
        """
        began = self._clock()
        part = self._parts.pop(name, None) or _Partial()
        missing = dict.fromkeys(item for item in items if item not in part.vectors)
        for number, piece in enumerate(weighed(missing, weight, most)):
            if number and self._clock() - began >= LONGEST_S and self._keep(name, part):
                raise TurnOver
            vectors, stats = encode(piece)
            part.vectors.update(zip(piece, vectors, strict=True))
            part.stats += stats
        return [part.vectors[item] for item in items], part.stats

    def _keep(self, name: tuple[str, str], part: _Partial) -> bool:
        part.left_at = now = self._clock()
        self._parts = {other: kept for other, kept in self._parts.items() if now - kept.left_at < FORGET_AFTER_S}
        if len(self._parts) >= MOST:
            return False
        self._parts[name] = part
        return True
