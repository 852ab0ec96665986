"""What a worker does before it is ready: load, self-test, measure. Here with the fake and with stubs."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tasks.embedding.speed import lease_for, measure_rate
from tasks.item import UNLIMITED_TOKENS
from tasks.model.encoder import (
    Encoder,
    Float32Array,
    ModelLoadError,
    TokenizedText,
    WayUnusable,
)
from tasks.model.fake import FakeEncoder
from tasks.model.load import first_that_passes, load
from tasks.model.packing import LONE_WIDTHS, ROW_WIDTHS
from tasks.model.self_test import MIN_COSINE, TEXTS, self_test, worst_cosine
from tests.unit.model.stub_encoder import Batch, StubEncoder
from worker_config.settings import load_settings


def test_the_fake_is_chosen_by_a_setting() -> None:
    settings = load_settings(
        model="some/model", compute="fake", fake_dimension=12, fake_max_tokens=9, fake_tokens_per_s=5e6
    )
    encoder = load(settings)
    assert encoder.info.compute == "fake"
    assert (encoder.info.model, encoder.info.dimension, encoder.info.max_tokens) == ("some/model", 12, 9)
    self_test(encoder)


class DriftingEncoder(FakeEncoder):
    """A fake whose forward pass is off by `drift` in one component of every vector."""

    drift = 0.0

    def forward(self, batch: Sequence[TokenizedText], *, alone: bool = False) -> Float32Array:
        rows = super().forward(batch, alone=alone)
        rows[:, 0] += self.drift
        return rows


@pytest.mark.parametrize(("drift", "passes"), [(0.0, True), (0.005, True), (0.1, False), (float("nan"), False)])
def test_the_self_test_refuses_other_vectors(drift: float, passes: bool) -> None:
    encoder = DriftingEncoder()
    encoder.drift = drift
    if passes:
        self_test(encoder)
        return
    with pytest.raises(ModelLoadError, match="EMBEDQ_MODEL=fake with fake in float32 on cpu failed its self-test"):
        self_test(encoder)


class TwoWays(FakeEncoder):
    """A fake that goes another way when it is alone: `drifts` says which of the two is off."""

    drifts: bool | None = None

    def forward(self, batch: Sequence[TokenizedText], *, alone: bool = False) -> Float32Array:
        rows = super().forward(batch, alone=alone)
        rows[:, 0] += 0.1 * (alone is self.drifts)
        return rows


@pytest.mark.parametrize("drifts", [True, False])
def test_the_self_test_tries_passes_alone_and_beside_others(drifts: bool) -> None:
    encoder = TwoWays(streams=2)
    self_test(encoder)
    encoder.drifts = drifts
    with pytest.raises(WayUnusable, match="failed its self-test"):
        self_test(encoder)


def test_with_one_stream_a_pass_is_always_alone() -> None:
    encoder = TwoWays(streams=1)
    encoder.drifts = False
    self_test(encoder)


class PaddedAlone(FakeEncoder):
    """A fake whose short texts share rows, and that pads a lone one. `drift`: of the vector of such a text."""

    drift = 0.0

    def __init__(self, streams: int) -> None:
        super().__init__(streams=streams)
        self.row_widths, self.lone_widths = ROW_WIDTHS, LONE_WIDTHS

    def forward(self, batch: Sequence[TokenizedText], *, alone: bool = False) -> Float32Array:
        rows = super().forward(batch, alone=alone)
        rows[:, 0] += self.drift * (len(batch) == 1 and batch[0].length < LONE_WIDTHS[-1])
        return rows


@pytest.mark.parametrize("streams", [1, 2])
def test_the_self_test_tries_a_lone_text_that_is_padded(streams: int) -> None:
    encoder = PaddedAlone(streams)
    self_test(encoder)
    encoder.drift = 0.1
    with pytest.raises(WayUnusable, match="failed its self-test"):
        self_test(encoder)


class TurnedEncoder(FakeEncoder):
    """A fake whose vectors are all turned, away from the reference, by the angle of this cosine."""

    cosine = 1.0

    def forward(self, batch: Sequence[TokenizedText], *, alone: bool = False) -> Float32Array:
        rows = super().forward(batch, alone=alone).astype(np.float64)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        aside = np.roll(rows, 1, axis=1)
        aside -= np.sum(aside * rows, axis=1, keepdims=True) * rows
        aside /= np.linalg.norm(aside, axis=1, keepdims=True)
        return np.asarray(self.cosine * rows + np.sqrt(1 - self.cosine**2) * aside, dtype=np.float32)


def test_the_self_test_passes_just_above_its_limit_and_not_just_below() -> None:
    assert MIN_COSINE == 0.99992
    encoder = TurnedEncoder()
    encoder.cosine = MIN_COSINE + 1e-6
    self_test(encoder)
    encoder.cosine = MIN_COSINE - 1e-6
    with pytest.raises(WayUnusable, match=r"cosine 0\.999919, needed 0\.99992"):
        self_test(encoder)


def refuse_to_load() -> Encoder:
    raise WayUnusable("OpenVINO cannot compile this model.")


def drifting() -> Encoder:
    encoder = DriftingEncoder("drifting")
    encoder.drift = 0.1
    return encoder


def good() -> Encoder:
    return FakeEncoder("good")


@pytest.mark.parametrize(
    ("candidates", "warnings"),
    [
        ([good, refuse_to_load], []),
        ([refuse_to_load, good], ["OpenVINO cannot compile"]),
        ([drifting, good], ["failed its self-test"]),
        ([drifting, refuse_to_load, good], ["failed its self-test", "OpenVINO cannot compile"]),
    ],
)
def test_the_first_that_passes_serves(
    candidates: list[Callable[[], Encoder]], warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert first_that_passes(candidates).info.model == "good"
    assert len(caplog.messages) == len(warnings)
    for message, expected in zip(caplog.messages, warnings, strict=True):
        assert expected in message
        assert message.endswith("Falling back.")


@pytest.mark.parametrize(
    ("candidates", "message"),
    [([drifting], "failed its self-test"), ([drifting, refuse_to_load], "OpenVINO cannot compile")],
)
def test_without_any_the_last_reason_is_told(candidates: list[Callable[[], Encoder]], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        first_that_passes(candidates)


def test_a_model_that_is_not_there_is_looked_for_once(caplog: pytest.LogCaptureFixture) -> None:
    def missing() -> Encoder:
        raise ModelLoadError("EMBEDQ_MODEL=x was not found.")

    with pytest.raises(ModelLoadError, match="was not found"):
        first_that_passes([missing, good])
    assert caplog.messages == []


def test_the_self_test_refuses_vectors_of_another_length() -> None:
    encoder = StubEncoder(max_tokens=1000)
    encoder.reference = np.ones((len(TEXTS), 8), dtype=np.float32)
    with pytest.raises(ModelLoadError, match="vectors have 4 components"):
        self_test(encoder)


def test_the_self_test_needs_batches_of_different_lengths() -> None:
    lengths = [text.length for text in FakeEncoder().tokenize(TEXTS, None)]
    assert min(lengths) == 3
    assert max(lengths) > 80


def test_worst_cosine_is_of_the_worst_row() -> None:
    left = np.array([[1, 0], [1, 0]], dtype=np.float32)
    right = np.array([[5, 0], [3, 4]], dtype=np.float32)
    assert worst_cosine(left, right) == pytest.approx(0.6)


def test_a_row_of_zeros_equals_only_a_row_of_zeros() -> None:
    rows = np.array([[0, 0], [3, 4]], dtype=np.float32)
    assert worst_cosine(rows, rows) == pytest.approx(1)
    assert np.isnan(worst_cosine(rows, np.array([[1, 0], [3, 4]], dtype=np.float32)))


@pytest.mark.parametrize(
    ("max_tokens", "passes"), [(100, [[100] * 10]), (4000, [[4000]]), (UNLIMITED_TOKENS, [[8192]])]
)
def test_a_lease_is_measured_with_full_passes(max_tokens: int, passes: list[list[int]]) -> None:
    encoder = StubEncoder(max_tokens=max_tokens)
    assert lease_for(encoder, max_padded_tokens=1000, least_s=60) == 60
    assert [[min(length, 8192) for length in batch] for batch in encoder.batches] == passes


def test_the_rate_is_estimated_tokens_over_the_time_they_took() -> None:
    now = [0.0]

    def pass_time(batch: Batch) -> None:
        # 100 estimated tokens per second: a token of the stub is a character, four of them an estimated token.
        now[0] += sum(text.length for text in batch) / 400

    encoder = StubEncoder(fault=pass_time, max_tokens=100_000)
    rate = measure_rate(encoder, max_padded_tokens=10_000, clock=lambda: now[0])
    assert rate == pytest.approx(100, rel=0.02)
    assert encoder.alone == [False]


def test_a_lease_lasts_for_passes_beside_others() -> None:
    encoder = StubEncoder(streams=2)
    assert lease_for(encoder, max_padded_tokens=1000, least_s=15) == 15
    assert set(encoder.alone) == {False}


def test_measuring_stops_with_a_model_that_takes_no_time() -> None:
    encoder = StubEncoder(max_tokens=4)
    assert measure_rate(encoder, max_padded_tokens=10**9) > 0
    assert len(encoder.tokenized) <= 2 * 1024
