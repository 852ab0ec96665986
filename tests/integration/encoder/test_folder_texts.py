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
from tests.integration.encoder.folders import (
    BERT,
    LONG,
    PROMPTS,
    ROBERTA,
    ROWS,
    TEXTS,
    Broken,
    Save,
    check_line,
    check_refusal,
    check_vectors,
    fast,
    pooled,
    served,
    truth,
    vectors_of,
    warnings_of,
)
from tests.thorough import some

pytestmark = pytest.mark.model


# ---- F1: more tokens than positions ----------------------------------------------------------------------------------

LEARNED: Mapping[str, tuple[str, Sequence[str], Mapping[str, Any], int | None]] = {
    "BERT": ("Bert", BERT, {"max_position_embeddings": 40}, 64),
    "GPT-2": ("GPT2", BERT, {"max_position_embeddings": 40, "n_embd": 32, "n_head": 4}, 64),
    "RoBERTa": ("Roberta", ROBERTA, {"max_position_embeddings": 42}, None),
    "XLM-RoBERTa": ("XLMRoberta", ROBERTA, {"max_position_embeddings": 42}, 64),
    "MPNet": ("MPNet", ROBERTA, {"max_position_embeddings": 42}, None),
}


@pytest.mark.parametrize("name", some(LEARNED, "BERT", "RoBERTa"))
def test_texts_are_cut_where_the_positions_of_the_network_end(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind, special, sizes, window = LEARNED[name]
    words = fast(special, None if special is ROBERTA else "[CLS] $A [SEP]")
    folder = made.save(tmp_path / "model", kind, words, window=window, **sizes)
    encoder = served(folder)
    assert encoder.info.max_tokens == 40
    claimed = str(window or sizes["max_position_embeddings"])
    assert [line for line in warnings_of(caplog) if re.search(rf"\b{claimed}\b", line) and re.search(r"\b40\b", line)]
    texts = [*TEXTS, LONG, " ".join(LONG.split()[:38]), " ".join(LONG.split()[:39])]
    found = vectors_of(encoder, texts)
    assert [vector.truncated for vector in found] == [False] * 3 + [True, False, True]
    check_vectors(found, truth(folder, texts, window=40))


def test_a_network_of_any_length_has_a_maximum_all_the_same(tmp_path: Path) -> None:
    folder = made.bare("T5ForConditionalGeneration", tmp_path / "model", **made.T5)
    encoder = served(folder)
    assert encoder.info.max_tokens == 2048
    check_vectors(vectors_of(encoder, TEXTS), truth(folder, TEXTS))


# ---- F2: more tokens than rows ---------------------------------------------------------------------------------------


def with_words(*words: str, **save: Any) -> Save:
    """Words are added to the tokenizer, and no rows to the network."""

    def build(folder: Path) -> None:
        tokenizer = fast()
        rows = len(tokenizer)
        tokenizer.add_tokens(list(words))
        made.save(folder, words=tokenizer, vocab_size=rows, **save)

    return build


_MARKED = {"prompts": {"query": "[Q] ", "document": "[D] "}}
TOO_FEW_ROWS: Mapping[str, tuple[Save, int, int]] = {
    "BERT": (with_words("zebra", "okapi"), ROWS + 2, ROWS),
    "prompts": (with_words("[Q]", "[D]", model=_MARKED), ROWS + 2, ROWS),
    "static": (lambda folder: made.static(folder, ROWS - 3), ROWS, ROWS - 3),
    "decoder": (
        lambda folder: made.save(folder, "Qwen2", vocab_size=ROWS - 1, **made.HEADS),
        ROWS + 1,
        ROWS - 1,
    ),  # its tokenizer adds one
}


@pytest.mark.parametrize("name", TOO_FEW_ROWS)
def test_a_tokenizer_with_more_tokens_than_the_network_has_rows_is_refused(name: str, tmp_path: Path) -> None:
    build, *numbers = TOO_FEW_ROWS[name]
    build(tmp_path / "model")
    check_refusal(tmp_path / "model", *(rf"\b{number}\b" for number in numbers), "tokenizer")


def test_a_text_with_a_special_token_without_a_row_fails_alone(tmp_path: Path) -> None:
    # The class of Qwen2's tokenizer adds this token when it is loaded; a multimodal model may have one for images.
    encoder = served(made.save(tmp_path / "model", "Qwen2", **made.HEADS))
    texts = [TEXTS[0], "the <|endoftext|> of text", TEXTS[1]]
    found = vectors_of(encoder, texts)
    assert [vector.error.code if vector.error else None for vector in found] == [None, "encoding_failed", None]
    check_vectors([found[0], found[2]], truth(tmp_path / "model", [texts[0], texts[2]]))


# ---- F7 and F13: prompts ---------------------------------------------------------------------------------------------

WINDOW_32 = made.changed("sentence_bert_config.json", max_seq_length=32)


@pytest.mark.parametrize(("name", "tokens"), [("query", 30), ("passage", 40)])
def test_a_prompt_that_fills_the_window_is_refused(name: str, tokens: int, broken: Broken) -> None:
    prompt = " ".join(LONG.split()[:tokens]) + " "
    folder = broken(made.both(WINDOW_32, made.changed(PROMPTS, prompts={name: prompt})))
    check_refusal(folder, rf"\b{name}\b", rf"\b({tokens}|{tokens + 2})\b", r"\b32\b")


@pytest.mark.parametrize(("tokens", "warned"), [(24, True), (20, False)])
def test_a_prompt_that_leaves_little_of_the_window_is_a_warning(
    tokens: int, warned: bool, broken: Broken, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = {"query": " ".join(LONG.split()[:tokens]) + " ", "document": ""}
    folder = broken(made.both(WINDOW_32, made.changed(PROMPTS, prompts=prompts)))
    encoder = served(folder)
    assert any("prompt" in line and "query" in line for line in warnings_of(caplog)) == warned
    found = vectors_of(encoder, ["what", "who"], Options(prompt_name="query"))
    check_vectors(found, truth(folder, ["what", "who"], prompt=prompts["query"]))


# ---- F12: texts without tokens ---------------------------------------------------------------------------------------

NO_TOKENS = ("\u200b", "\u00ad", "   ", "", "\u200b\u00ad")


def outcomes(encoder: Encoder) -> list[list[Vector]]:
    """Of these texts alone, and beside others."""
    beside = vectors_of(encoder, [TEXTS[0], *NO_TOKENS, TEXTS[1]])
    assert beside[0].vector is not None
    return [[vectors_of(encoder, [text])[0] for text in NO_TOKENS], beside[1:-1]]


def test_a_text_without_tokens_is_refused_whoever_is_beside_it(tmp_path: Path) -> None:
    words = fast(BERT, "$A", padding_side="left")
    folder = made.save(tmp_path / "model", "Qwen3", words, modules=pooled("lasttoken"), **made.HEADS)
    for found in outcomes(served(folder)):
        errors = [vector.error or TextError("", "") for vector in found]
        assert [error.code for error in errors] == ["no_tokens"] * len(NO_TOKENS)
        for error in errors:
            check_line(error.message, "no tokens")


@pytest.mark.parametrize("save", [made.save, made.static])
def test_a_text_without_tokens_of_its_own_is_served_by_others(save: Save, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(folder)
    for found in outcomes(served(folder)):
        check_vectors(found, truth(folder, NO_TOKENS))
