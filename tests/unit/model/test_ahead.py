"""Passes that are begun before the one before them is collected, on a device that only writes down what it is asked."""

from collections.abc import Callable

import numpy as np
import pytest

from tasks.embedding.speed import lease_for
from tasks.gate import Gate
from tasks.item import Options
from tasks.model.encoder import EncoderBroken, EncodeStats, Float32Array, ItemVector, TextItem
from tasks.model.encoding import encode
from tests.unit.model.stub_encoder import Batch, StubEncoder

TEXTS = [f"{n:03}" for n in range(6)]
ONE_EACH, TWO_EACH = 3, 6
"""Budgets for one and for two of the texts in a pass."""

Fault = Callable[[str], None]


def no_fault(_texts: str) -> None:
    """The fault that never happens."""


def at(texts: str, error: Exception) -> Fault:
    """Raises `error` for a pass of these texts."""

    def fault(named: str) -> None:
        if named == texts:
            raise error

    return fault


class Recorder(StubEncoder):
    """Launches passes; `events` is what happened, with the numbers of the texts.

    Args:
        at_launch: called with the texts of a pass when it is launched; raises what should go wrong then.
        at_collect: the same when it is collected.
    """

    def __init__(self, *, at_launch: Fault = no_fault, at_collect: Fault = no_fault, streams: int = 1) -> None:
        super().__init__(streams=streams)
        self.events: list[str] = []
        self.launch = self._launch
        self._at_launch, self._at_collect = at_launch, at_collect

    def forward(self, batch: Batch, *, alone: bool = False) -> Float32Array:
        self.events.append(f"forward {_names(batch)}")
        return super().forward(batch, alone=alone)

    def _launch(self, batch: Batch, *, alone: bool = False) -> Callable[[], Float32Array]:
        names = _names(batch)
        self.events.append(f"launch {names}")
        self._at_launch(names)

        def collect() -> Float32Array:
            self.events.append(f"collect {names}")
            self._at_collect(names)
            return StubEncoder.forward(self, batch, alone=alone)

        return collect


def failing(step: str, fault: Fault) -> Recorder:
    return Recorder(at_launch=fault) if step == "at_launch" else Recorder(at_collect=fault)


def _names(batch: Batch) -> str:
    return " ".join("".join(map(chr, text.features["input_ids"])).lstrip("0") or "0" for text in batch)


def outcomes(encoder: Recorder, budget: int, gate: Gate | None = None) -> tuple[list[ItemVector], EncodeStats]:
    return encode(
        encoder,
        [TextItem(text, Options(normalize=False)) for text in TEXTS],
        max_padded_tokens=budget,
        gate=gate or Gate(single=True),
        between=lambda: encoder.events.append("between"),
        finished=lambda: encoder.events.append("finished"),
    )


def codes(found: list[ItemVector]) -> list[str | None]:
    return [outcome.error.code if outcome.error else None for outcome in found]


def test_a_pass_is_launched_before_the_one_before_it_is_collected() -> None:
    encoder = Recorder()
    found, stats = outcomes(encoder, TWO_EACH)
    assert encoder.events == [
        *("launch 0 1", "launch 2 3", "collect 0 1", "finished", "collect 2 3", "finished"),
        *("between", "launch 4 5", "collect 4 5", "finished"),
    ]
    assert (stats.forward_passes, stats.padded_tokens, stats.tokens) == (3, 18, 18)
    np.testing.assert_array_equal(np.stack([o.vector for o in found if o.vector is not None]), [[3, 48, 0, 1]] * 6)


def test_two_are_under_way_at_most_and_none_while_a_hook_runs() -> None:
    encoder = Recorder()
    outcomes(encoder, ONE_EACH)
    under_way, most = 0, 0
    for event in encoder.events:
        under_way += event.startswith("launch") - event.startswith("collect")
        most = max(most, under_way)
        assert not (event == "between" and under_way)
    assert (most, under_way) == (2, 0)
    assert encoder.events.count("between") == 2


def test_without_launch_each_pass_ends_before_the_next_one_begins() -> None:
    encoder = Recorder()
    encoder.launch = None
    outcomes(encoder, TWO_EACH)
    assert encoder.events == [
        *("forward 0 1", "finished", "between", "forward 2 3", "finished"),
        *("between", "forward 4 5", "finished"),
    ]


@pytest.mark.parametrize("step", ["at_launch", "at_collect"])
@pytest.mark.parametrize("text", range(6))
def test_what_fails_is_the_pass_of_the_text_at_fault(step: str, text: int) -> None:
    encoder = failing(step, at(f"{text}", ValueError()))
    found, stats = outcomes(encoder, ONE_EACH)
    assert codes(found) == [None if n != text else "encoding_failed" for n in range(6)]
    assert stats.forward_passes == 6


@pytest.mark.parametrize("step", ["at_launch", "at_collect"])
def test_a_pass_that_fails_is_halved_and_the_one_beside_it_is_not_repeated(step: str) -> None:
    def fault(names: str) -> None:
        if "2" in names:
            raise ValueError

    encoder = failing(step, fault)
    found, stats = outcomes(encoder, TWO_EACH)
    assert codes(found) == [None, None, "encoding_failed", None, None, None]
    assert stats.forward_passes == 5
    assert encoder.events.count("collect 0 1") == 1


@pytest.mark.parametrize("step", ["at_launch", "at_collect"])
@pytest.mark.parametrize("single", [True, False])
def test_a_text_that_ran_out_of_memory_beside_an_own_pass_is_tried_again_alone(step: str, single: bool) -> None:
    encoder = failing(step, at("1", MemoryError()))
    found, _ = outcomes(encoder, ONE_EACH, Gate(single=single))
    assert codes(found) == [None] * 6
    assert encoder.events.count("forward 1") == 1
    before = encoder.events[: encoder.events.index("forward 1")]
    assert before.count("launch 0") == before.count("collect 0") == 1


def test_a_lone_pass_that_does_not_fit_is_not_repeated() -> None:
    encoder = Recorder(at_collect=at("0", MemoryError()))
    [outcome], _ = encode(encoder, [TextItem(TEXTS[0])], max_padded_tokens=ONE_EACH)
    assert codes([outcome]) == ["out_of_memory"]
    assert encoder.events == ["launch 0", "collect 0"]


def test_a_text_too_large_for_the_card_does_not_stop_a_measurement() -> None:
    def fault(_names: str) -> None:
        raise MemoryError

    encoder = Recorder(at_launch=fault)
    assert lease_for(encoder, max_padded_tokens=1000, least_s=60) == 60


@pytest.mark.parametrize(
    ("step", "text", "events"),
    [
        ("at_launch", "0", ["launch 0"]),
        ("at_launch", "1", ["launch 0", "launch 1"]),
        ("at_collect", "0", ["launch 0", "launch 1", "collect 0"]),
        ("at_collect", "1", ["launch 0", "launch 1", "collect 0", "finished", "collect 1"]),
    ],
)
def test_with_a_lost_device_nothing_more_is_asked_of_it(step: str, text: str, events: list[str]) -> None:
    encoder = failing(step, at(text, EncoderBroken("gone")))
    gate = Gate(single=False)
    with pytest.raises(EncoderBroken):
        outcomes(encoder, ONE_EACH, gate)
    assert encoder.events == events
    with gate.alone():
        pass  # the gate was left


def test_a_hook_that_raises_leaves_nothing_under_way() -> None:
    encoder = Recorder()

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        encode(encoder, [TextItem(text) for text in TEXTS], max_padded_tokens=ONE_EACH, between=stop)
    assert encoder.events == ["launch 0", "launch 1", "collect 0", "collect 1"]


def test_a_limit_that_falls_holds_for_the_second_pass_too() -> None:
    encoder = Recorder()
    items = [TextItem(text) for text in TEXTS]
    encode(encoder, items, max_padded_tokens=TWO_EACH, limit=lambda: ONE_EACH)
    assert sorted(event for event in encoder.events if event.startswith("launch")) == [f"launch {n}" for n in range(6)]
