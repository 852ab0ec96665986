"""Static models beyond what the table of architectures compares: ways, texts without tokens, no maximum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, ModelLoadError, Text
from tasks.encoder.load import load
from tests.heavy import sentence_transformers
from tests.integration.encoder.architectures import save_model2vec
from worker_config.settings import load_settings

pytestmark = pytest.mark.model

EMPTY = ["", " ", "\0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("static")
    save_model2vec(parent)
    return parent / "model"


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return load(load_settings(model=str(folder), device="cpu"))


def test_a_way_that_is_asked_for_by_name_is_served_or_refused(folder: Path) -> None:
    assert load(load_settings(model=str(folder), device="cpu", compute="torch", precision="float32")).info.max_tokens
    with pytest.raises(ModelLoadError, match=r"is a static model.*EMBEDQ_COMPUTE=openvino is for transformers"):
        load(load_settings(model=str(folder), device="cpu", compute="openvino", precision="float32"))


@pytest.mark.parametrize("texts", [EMPTY, ["hello", *EMPTY, "there"]])
def test_texts_without_tokens_have_the_vector_of_the_library(texts: list[str], folder: Path, encoder: Encoder) -> None:
    outcomes, _ = encode(encoder, [Text(text) for text in texts], max_padded_tokens=100)
    vectors = [outcome.vector for outcome in outcomes if outcome.vector is not None]
    library = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(np.stack(vectors), library.encode(texts, normalize_embeddings=True), rtol=1e-5)
    assert [outcome.tokens for outcome in outcomes if outcome.tokens == 0] == [0] * len(EMPTY)


def test_a_text_of_any_length_is_read_whole(encoder: Encoder) -> None:
    [outcome], stats = encode(encoder, [Text("hello " * 50_000)], max_padded_tokens=1024)
    assert (outcome.tokens, outcome.truncated, stats.forward_passes) == (250_000, False, 1)
