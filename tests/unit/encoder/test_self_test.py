"""The self-test refuses vectors that are not the reference's, and the first way that passes serves."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import (
    Encoder,
    Float32Array,
    Layout,
    ModelLoadError,
    Tokens,
    WayUnusable,
)
from tasks.encoder.load import first_that_passes, load
from tasks.encoder.self_test import TEXTS, self_test, worst_cosine
from tests.unit.encoder.stub_encoder import StubEncoder
from worker_config.settings import load_settings


def test_the_fake_is_chosen_by_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DIMENSION": "12", "MAX_TOKENS": "9", "TOKENS_PER_S": "5e6"}.items():
        monkeypatch.setenv(f"EMBEDQ_FAKE_{name}", value)
    encoder = load(load_settings(model="some/model", compute="fake"))
    assert encoder.info.compute == "fake"
    assert (encoder.info.model, encoder.info.dimension, encoder.info.max_tokens) == ("some/model", 12, 9)
    self_test(encoder)


class DriftingEncoder(FakeEncoder):
    """A fake whose forward pass is off by `drift` in one component of every vector."""

    drift = 0.0

    def forward(self, texts: Sequence[Tokens], layout: Layout) -> Float32Array:
        rows = super().forward(texts, layout)
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
    encoder.reference_texts, encoder.reference = TEXTS, np.ones((len(TEXTS), 8), dtype=np.float32)
    with pytest.raises(ModelLoadError, match="vectors have 4 components"):
        self_test(encoder)


def test_a_row_of_zeros_equals_only_a_row_of_zeros() -> None:
    rows = np.array([[0, 0], [3, 4]], dtype=np.float32)
    assert worst_cosine(rows, rows) == pytest.approx(1)
    assert np.isnan(worst_cosine(rows, np.array([[1, 0], [3, 4]], dtype=np.float32)))
