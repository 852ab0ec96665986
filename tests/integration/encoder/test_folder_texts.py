"""Model folders and texts: where texts are cut, which tokens they may hold, and which prompts go before them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.encoder.interface import Encoder
from tasks.item import Options, TextError, Vector
from tests.integration.encoder import folders as made
from tests.thorough import some

pytestmark = pytest.mark.model


LEARNED: Mapping[str, tuple[str, Sequence[str], Mapping[str, Any], int | None]] = {
    "BERT": ("Bert", made.BERT, {"max_position_embeddings": 40}, 64),
    "GPT-2": ("GPT2", made.BERT, {"max_position_embeddings": 40, "n_embd": 32, "n_head": 4}, 64),
    "RoBERTa": ("Roberta", made.ROBERTA, {"max_position_embeddings": 42}, None),
    "XLM-RoBERTa": ("XLMRoberta", made.ROBERTA, {"max_position_embeddings": 42}, 64),
    "MPNet": ("MPNet", made.ROBERTA, {"max_position_embeddings": 42}, None),
}


@pytest.mark.parametrize("name", some(LEARNED, "BERT", "RoBERTa"))
def test_texts_are_cut_where_the_positions_of_the_network_end(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind, special, sizes, window = LEARNED[name]
    words = made.fast(special, None if special is made.ROBERTA else "[CLS] $A [SEP]")
    folder = made.save(tmp_path / "model", kind, words, window=window, **sizes)
    encoder = made.served(folder)
    assert encoder.info.max_tokens == 40
    claimed = str(window or sizes["max_position_embeddings"])
    assert [line for line in caplog.messages if re.search(rf"\b{claimed}\b", line) and re.search(r"\b40\b", line)]
    texts = [*made.TEXTS, made.LONG, " ".join(made.LONG.split()[:38]), " ".join(made.LONG.split()[:39])]
    found = made.vectors_of(encoder, texts)
    assert [vector.truncated for vector in found] == [False] * 3 + [True, False, True]
    made.check_vectors(found, made.truth(folder, texts, window=40))


def test_a_network_of_any_length_has_a_maximum_all_the_same(tmp_path: Path) -> None:
    folder = made.bare("T5ForConditionalGeneration", tmp_path / "model", **made.T5)
    encoder = made.served(folder)
    assert encoder.info.max_tokens == 2048
    made.check_vectors(made.vectors_of(encoder, made.TEXTS), made.truth(folder, made.TEXTS))


def with_words(*words: str, **save: Any) -> made.Save:
    def build(folder: Path) -> None:
        tokenizer = made.fast()
        rows = len(tokenizer)
        tokenizer.add_tokens(list(words))
        made.save(folder, words=tokenizer, vocab_size=rows, **save)

    return build


_MARKED = {"prompts": {"query": "[Q] ", "document": "[D] "}}
TOO_FEW_ROWS: Mapping[str, tuple[made.Save, int, int]] = {
    "BERT": (with_words("zebra", "okapi"), made.ROWS + 2, made.ROWS),
    "prompts": (with_words("[Q]", "[D]", model=_MARKED), made.ROWS + 2, made.ROWS),
    "static": (lambda folder: made.static(folder, made.ROWS - 3), made.ROWS, made.ROWS - 3),
    "decoder": (
        lambda folder: made.save(folder, "Qwen2", vocab_size=made.ROWS - 1, **made.HEADS),
        made.ROWS + 1,
        made.ROWS - 1,
    ),  # its tokenizer adds one
}


@pytest.mark.parametrize("name", TOO_FEW_ROWS)
def test_a_tokenizer_with_more_tokens_than_the_network_has_rows_is_refused(name: str, tmp_path: Path) -> None:
    build, *numbers = TOO_FEW_ROWS[name]
    build(tmp_path / "model")
    made.check_refusal(tmp_path / "model", *(rf"\b{number}\b" for number in numbers), "tokenizer")


def test_a_text_with_a_special_token_without_a_row_fails_alone(tmp_path: Path) -> None:
    # The class of Qwen2's tokenizer adds this token when it is loaded; a multimodal model may have one for images.
    encoder = made.served(made.save(tmp_path / "model", "Qwen2", **made.HEADS))
    texts = [made.TEXTS[0], "the <|endoftext|> of text", made.TEXTS[1]]
    found = made.vectors_of(encoder, texts)
    assert [vector.error.code if vector.error else None for vector in found] == [None, "encoding_failed", None]
    made.check_vectors([found[0], found[2]], made.truth(tmp_path / "model", [texts[0], texts[2]]))


WINDOW_32 = made.changed("sentence_bert_config.json", max_seq_length=32)


@pytest.mark.parametrize(("name", "tokens"), [("query", 30), ("passage", 40)])
def test_a_prompt_that_fills_the_window_is_refused(name: str, tokens: int, broken: made.Broken) -> None:
    prompt = " ".join(made.LONG.split()[:tokens]) + " "
    folder = broken(made.both(WINDOW_32, made.changed(made.PROMPTS, prompts={name: prompt})))
    made.check_refusal(folder, rf"\b{name}\b", rf"\b({tokens}|{tokens + 2})\b", r"\b32\b")


@pytest.mark.parametrize(("tokens", "warned"), [(24, True), (20, False)])
def test_a_prompt_that_leaves_little_of_the_window_is_a_warning(
    tokens: int, warned: bool, broken: made.Broken, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = {"query": " ".join(made.LONG.split()[:tokens]) + " ", "document": ""}
    folder = broken(made.both(WINDOW_32, made.changed(made.PROMPTS, prompts=prompts)))
    encoder = made.served(folder)
    assert any("prompt" in line and "query" in line for line in caplog.messages) == warned
    found = made.vectors_of(encoder, ["what", "who"], Options(prompt_name="query"))
    made.check_vectors(found, made.truth(folder, ["what", "who"], prompt=prompts["query"]))


NO_TOKENS = ("\u200b", "\u00ad", "   ", "", "\u200b\u00ad")


def outcomes(encoder: Encoder) -> list[list[Vector]]:
    beside = made.vectors_of(encoder, [made.TEXTS[0], *NO_TOKENS, made.TEXTS[1]])
    assert beside[0].vector is not None
    return [[made.vectors_of(encoder, [text])[0] for text in NO_TOKENS], beside[1:-1]]


def test_a_text_without_tokens_is_refused_whoever_is_beside_it(tmp_path: Path) -> None:
    words = made.fast(made.BERT, "$A", padding_side="left")
    folder = made.save(tmp_path / "model", "Qwen3", words, modules=made.pooled("lasttoken"), **made.HEADS)
    for found in outcomes(made.served(folder)):
        errors = [vector.error or TextError("", "") for vector in found]
        assert [error.code for error in errors] == ["no_tokens"] * len(NO_TOKENS)
        for error in errors:
            made.check_line(error.message, "no tokens")


@pytest.mark.parametrize("save", [made.save, made.static])
def test_a_text_without_tokens_of_its_own_is_served_by_others(save: made.Save, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(folder)
    for found in outcomes(made.served(folder)):
        made.check_vectors(found, made.truth(folder, NO_TOKENS))
