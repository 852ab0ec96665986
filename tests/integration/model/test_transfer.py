"""Passes of a real model that are launched ahead: a device that is slow to answer, played by the CPU.

What `OnCard` asks of torch needs a card, and is not tried here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tasks.item import Options
from tasks.model.device import Way
from tasks.model.encoder import EncoderBroken, Float32Array, TextItem
from tasks.model.encoding import encode
from tasks.model.self_test import self_test
from tasks.model.sentence import SentenceEncoder
from tasks.model.transfer import OnCpu
from tests.heavy import sentence_transformers, torch
from tests.integration.model.tiny_model import TinyModel

pytestmark = pytest.mark.model

Folders = Mapping[TinyModel, Path]

TEXTS = ["".join(chr(97 + (7 * i + j) % 26) for j in range(2 + i % 19)) for i in range(40)]


class SlowToAnswer(OnCpu):
    """Vectors are copied when they are collected, and not before; `events` is the order of it.

    Args:
        error: raised instead of vectors.
    """

    waits = False

    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[str] = []
        self._error = error

    def send(self, array: npt.NDArray[np.int64]) -> Any:
        if self.events[-1:] != ["send"]:
            self.events.append("send")
        return super().send(array)

    def collect(self, vectors: Any) -> Callable[[], Float32Array]:
        self.events.append("launched")

        def wait() -> Float32Array:
            self.events.append("collect")
            if self._error is not None:
                raise self._error
            return OnCpu.collect(self, vectors)()

        return wait


def encoder_with(folder: Path, transfer: OnCpu) -> tuple[SentenceEncoder, Float32Array]:
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    expected = np.asarray(model.encode(TEXTS, show_progress_bar=False), dtype=np.float32)
    encoder = SentenceEncoder(model, name="tiny", revision="0", way=Way("torch", "float32"), transfer=transfer)
    return encoder, expected


@pytest.mark.parametrize("kind", [TinyModel.CLS, TinyModel.DENSE, TinyModel.INSTRUCTED, TinyModel.CAUSAL])
def test_vectors_of_passes_launched_ahead_equal_the_library(kind: TinyModel, tiny_folders: Folders) -> None:
    device = SlowToAnswer()
    encoder, expected = encoder_with(tiny_folders[kind], device)
    outcomes, stats = encode(
        encoder, [TextItem(text, Options(normalize=False)) for text in TEXTS], max_padded_tokens=64
    )
    found = np.stack([outcome.vector for outcome in outcomes if outcome.vector is not None])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    two, one = ["send", "launched"] * 2 + ["collect"] * 2, ["send", "launched", "collect"]
    assert stats.forward_passes > 10
    assert device.events == two * (stats.forward_passes // 2) + one * (stats.forward_passes % 2)
    self_test(encoder)


def test_a_card_that_is_lost_is_found_out_when_vectors_are_collected(tiny_folders: Folders) -> None:
    lost = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    encoder, _ = encoder_with(tiny_folders[TinyModel.CLS], SlowToAnswer(lost))
    with pytest.raises(EncoderBroken):
        encode(encoder, [TextItem("a")], max_padded_tokens=64)


def test_a_card_that_is_full_is_not_lost(tiny_folders: Folders) -> None:
    full = torch.AcceleratorError("CUDA error: out of memory")
    encoder, _ = encoder_with(tiny_folders[TinyModel.CLS], SlowToAnswer(full))
    [outcome], _ = encode(encoder, [TextItem("a")], max_padded_tokens=64)
    assert outcome.error is not None
    assert outcome.error.code == "out_of_memory"


def test_on_a_cpu_nothing_is_launched_ahead(tiny_folders: Folders) -> None:
    encoder, _ = encoder_with(tiny_folders[TinyModel.CLS], OnCpu())
    assert encoder.launch is None
