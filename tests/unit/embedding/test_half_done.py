"""Suspects that take longer than a turn, with a clock that only encoding moves."""

from collections.abc import Sequence

import numpy as np

from tasks.embedding.half_done import FORGET_AFTER_S, LONGEST_S, MOST, HalfDone, TurnOver
from tasks.encoder.interface import EncodeStats, Text, Vector

TEXTS = 10
PER_TURN = 4


class Process:
    """A process in which so many texts take as long as a turn."""

    def __init__(self, *, per_turn: float = PER_TURN) -> None:
        self.per_turn = per_turn
        self.now_s = 0.0
        self.encoded: list[str] = []
        self.half_done = HalfDone(lambda: self.now_s)

    def encode(self, items: Sequence[Text]) -> tuple[list[Vector], EncodeStats]:
        self.now_s += LONGEST_S / self.per_turn * len(items)
        self.encoded += [item.text for item in items]
        vectors = [Vector(np.full(2, int(item.text), "<f4"), 1, truncated=False) for item in items]
        return vectors, EncodeStats(forward_passes=1, padded_tokens=len(items), tokens=len(items))

    def turn(self, name: str, texts: Sequence[str] = tuple(map(str, range(TEXTS)))) -> list[float] | None:
        """The vectors' first numbers; None when the turn is over."""
        items = [Text(text) for text in texts]
        try:
            vectors, stats = self.half_done.encode(("t", name), items, self.encode, weight=lambda _: 1, most=1)
        except TurnOver:
            return None
        assert stats == EncodeStats(len(set(texts)), len(set(texts)), len(set(texts)))
        return [float(outcome.vector[0]) for outcome in vectors if outcome.vector is not None]


def test_what_is_done_is_not_done_again() -> None:
    process = Process()
    turns = [process.turn("s0") for _ in range(3)]
    assert turns == [None, None, [float(n) for n in range(TEXTS)]]
    assert process.encoded == [str(n) for n in range(TEXTS)]


def test_a_short_one_is_done_at_once_and_a_repeated_text_once() -> None:
    process = Process()
    assert process.turn("s0", ["1", "2", "1"]) == [1, 2, 1]
    assert process.encoded == ["1", "2"]


def test_each_turn_gets_on_however_long_a_text_takes() -> None:
    process = Process(per_turn=0.5)
    assert [process.turn("s0", ["1", "2", "3"]) for _ in range(3)] == [None, None, [1, 2, 3]]


def test_so_many_take_turns_and_one_more_runs_to_its_end() -> None:
    process = Process()
    assert [process.turn(f"s{n}") for n in range(MOST)] == [None] * MOST
    assert process.turn("one more") is not None
    assert [process.turn(f"s{n}") for n in range(MOST)] == [None] * MOST
    assert None not in [process.turn(f"s{n}") for n in range(MOST)]


def test_what_nobody_comes_back_for_is_forgotten() -> None:
    process = Process()
    for number in range(MOST):
        process.turn(f"s{number}")
    process.now_s += FORGET_AFTER_S
    assert process.turn("another") is None
