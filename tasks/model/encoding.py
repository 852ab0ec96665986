"""Texts in, vectors out: the one function the worker calls."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from tasks.model import forward
from tasks.model.batching import plan
from tasks.model.encoder import Encoder, TokenizedText
from tasks.model.finish import check_options, finish
from tasks.model.types import EncodeStats, Float32Array, ItemFailure, ItemVector, TextItem

_Key: TypeAlias = tuple[str | None, str]
"""Prompt name and text: what the raw vector depends on."""


def encode(
    encoder: Encoder,
    items: Sequence[TextItem],
    *,
    max_padded_tokens: int,
    between: Callable[[], None] = forward.nothing,
    finished: Callable[[], None] = forward.nothing,
) -> tuple[list[ItemVector], EncodeStats]:
    """One outcome per item, in input order, and what it took.

    Every distinct (prompt, text) is tokenized once and goes through the model once, whatever the other options are.

    Args:
        encoder: the loaded model.
        items: the texts; none is fine.
        max_padded_tokens: budget of one forward pass.
        between: called before every forward pass except the first. It may take a while (serve more urgent texts), or
            raise to abandon the rest; its exception comes out of this call and what was computed is dropped.
        finished: called after every forward pass, failed ones included: the sign that work moves.

    Raises:
        EncoderBroken: this process cannot encode any more; no item is to blame.
    """
    refused = [check_options(item.options, encoder.info) for item in items]
    usable = [item for item, failure in zip(items, refused, strict=True) if failure is None]
    tokenized = _tokenize(encoder, usable)
    for index, item in enumerate(items):
        refused[index] = refused[index] or _refusal(item, tokenized[_key(item)])
    wanted = dict.fromkeys(_key(item) for item, failure in zip(items, refused, strict=True) if failure is None)
    texts = {key: text for key in wanted if isinstance(text := tokenized[key], TokenizedText)}
    rows, stats = _forward(encoder, texts, max_padded_tokens, between, finished)
    outcomes = []
    for item, failure in zip(items, refused, strict=True):
        key = _key(item)
        outcomes.append(_failed(failure) if failure else _outcome(item, texts[key], rows[key]))
    return outcomes, stats


def _key(item: TextItem) -> _Key:
    return item.options.prompt_name, item.text


def _tokenize(encoder: Encoder, items: Iterable[TextItem]) -> dict[_Key, TokenizedText | ItemFailure]:
    by_prompt: dict[str | None, dict[str, None]] = {}
    for item in items:
        by_prompt.setdefault(item.options.prompt_name, {})[item.text] = None
    return {
        (prompt_name, text): result
        for prompt_name, texts in by_prompt.items()
        for text, result in zip(texts, _tokenize_group(encoder, list(texts), prompt_name), strict=True)
    }


def _tokenize_group(
    encoder: Encoder, texts: list[str], prompt_name: str | None
) -> Sequence[TokenizedText | ItemFailure]:
    try:
        return encoder.tokenize(texts, prompt_name)
    except Exception as error:  # noqa: BLE001 - a tokenizer may raise anything for one text; its neighbours must not pay
        if len(texts) == 1:
            return [forward.failure_of(error)]
        return [result for text in texts for result in _tokenize_group(encoder, [text], prompt_name)]


def _refusal(item: TextItem, text: TokenizedText | ItemFailure) -> ItemFailure | None:
    if isinstance(text, ItemFailure):
        return text
    if text.truncated and not item.options.truncate:
        return ItemFailure(
            "input_too_long",
            f"This text has {text.full_length} tokens; the model takes at most {text.length}. "
            "Shorten it, split it, or set truncate to true.",
        )
    return None


def _forward(
    encoder: Encoder,
    texts: dict[_Key, TokenizedText],
    max_padded_tokens: int,
    between: Callable[[], None],
    finished: Callable[[], None],
) -> tuple[dict[_Key, Float32Array | ItemFailure], EncodeStats]:
    keys, values = list(texts), list(texts.values())
    groups: dict[int | None, list[int]] = {}
    for index, text in enumerate(values):
        groups.setdefault(text.prompt_length, []).append(index)
    batches = [
        [group[i] for i in batch]
        for group in groups.values()
        for batch in plan([values[i].length for i in group], max_padded_tokens)
    ]
    rows, stats = forward.run(encoder, values, batches, between=between, finished=finished)
    return {keys[index]: row for index, row in rows.items()}, stats


def _outcome(item: TextItem, text: TokenizedText, row: Float32Array | ItemFailure) -> ItemVector:
    vector = row if isinstance(row, ItemFailure) else finish(row, item.options)
    if isinstance(vector, ItemFailure):
        return _failed(vector)
    return ItemVector(vector, text.length, text.truncated)


def _failed(failure: ItemFailure) -> ItemVector:
    return ItemVector(vector=None, tokens=0, truncated=False, error=failure)
