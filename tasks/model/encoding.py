"""Texts in, vectors out: the one function the worker calls, and the stages of it in their order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from tasks.gate import ALONE, Gate, nothing
from tasks.item import ItemError, Options
from tasks.model import forward
from tasks.model.batching import plan
from tasks.model.encoder import Encoder, EncodeStats, Float32Array, ItemVector, ModelInfo, TextItem, TokenizedText
from tasks.model.vector_cache import OFF, CachedText, TextKey, VectorCache
from tasks.pieces import weighed

NON_FINITE = ItemError("non_finite_vector", "The model gave a vector with NaN or infinite components.")
"""A vector like this is never a result, also when the component at fault would be cut off."""

_SMALLEST_NORM = 1e-12
"""As in torch.nn.functional.normalize: a zero vector stays zero."""

_Measured: TypeAlias = TokenizedText | CachedText
"""A text whose length in tokens is known."""

_CHARS_AT_ONCE, _TEXTS_AT_ONCE = 2**18, 1024
"""Tokenized: about a twentieth of a second where texts have to be read to their ends (see `long_text`). A claim of bulk
work may hold tens of megabytes: meanwhile urgent texts would wait and its lease might end."""


def encode(
    encoder: Encoder,
    items: Sequence[TextItem],
    *,
    max_padded_tokens: int,
    gate: Gate = ALONE,
    cache: VectorCache = OFF,
    remember: bool = False,
    limit: Callable[[], int] = forward.unlimited,
    between: Callable[[], None] = nothing,
    finished: Callable[[], None] = nothing,
) -> tuple[list[ItemVector], EncodeStats]:
    """One outcome per item, in input order, and what it took.

    Every distinct key (owner, prompt, text) is tokenized once and goes through the model once, whatever the other
    options are; one that the cache knows does neither.

    Args:
        encoder: the loaded model.
        items: the texts; none is fine.
        max_padded_tokens: budget of one forward pass; what the texts are sorted for.
        limit: the same, asked before each pass: it may have become less.
        gate: of all threads that use the encoder at the same time; passes go through it, and what is tokenized.
        cache: of this encoder; asked first.
        remember: the cache learns what is encoded now.
        between: called before every forward pass except the first, and from time to time while texts are tokenized. It
            may take a while (serve more urgent texts), or raise to abandon the rest; its exception comes out of this
            call and what was computed is dropped.
        finished: called after every forward pass, failed ones included, before `between` while texts are tokenized,
            and while the gate is closed for somebody who is watched himself: the sign that work moves.

    Raises:
        EncoderBroken: this process cannot encode any more; no item is to blame.
    """
    keys = [cache.key(item) for item in items]
    bad_options = {options: check_options(options, encoder.info) for options in {item.options for item in items}}
    usable = dict.fromkeys(key for key, item in zip(keys, items, strict=True) if bad_options[item.options] is None)
    hits = cache.find(usable)
    misses = (key for key in usable if key not in hits)
    read: Mapping[TextKey, _Measured | ItemError] = {**hits, **_tokenize(encoder, misses, gate, between, finished)}
    failures = [
        bad_options[item.options] or _refusal(item.options, read[key]) for key, item in zip(keys, items, strict=True)
    ]
    wanted = dict.fromkeys(key for key, failure in zip(keys, failures, strict=True) if failure is None)
    fresh = {key: text for key in wanted if isinstance(text := read[key], TokenizedText)}
    cached = {key: text for key in wanted if isinstance(text := read[key], CachedText)}
    raw, stats = _forward(
        encoder,
        list(fresh.values()),
        max_padded_tokens,
        gate=gate,
        limit=limit,
        between=between,
        finished=finished,
    )
    if remember and cache.keeps:
        cache.add(_learnt(fresh, raw))
    rows = {key: row for row, key in enumerate([*fresh, *cached])}
    jobs = [
        _Job(item.options, failure, rows.get(key, -1)) for key, item, failure in zip(keys, items, failures, strict=True)
    ]
    return _outcomes(jobs, [*fresh.values(), *cached.values()], _with_cached(raw, cached)), stats


def check_options(options: Options, info: ModelInfo) -> ItemError | None:
    """Why the model cannot serve these options; None when it can."""
    unfit = options.unfit(info.dimension, info.prompts)
    if unfit == "dimensions":
        return ItemError(
            "invalid_dimensions",
            f"dimensions is {options.dimensions}; this model's vectors have {info.dimension}. "
            f"Use 1 to {info.dimension}, or leave it out.",
        )
    if unfit == "prompt_name":
        names = ", ".join(info.prompts) or "none"
        return ItemError("unknown_prompt", f"The model has no prompt of this name. Known prompts: {names}.")
    return None


def _tokenize(
    encoder: Encoder,
    keys: Iterable[TextKey],
    gate: Gate,
    between: Callable[[], None],
    finished: Callable[[], None],
) -> dict[TextKey, TokenizedText | ItemError]:
    by_prompt: dict[str | None, list[TextKey]] = {}
    for key in keys:
        by_prompt.setdefault(key.prompt_name, []).append(key)
    tokenized: dict[TextKey, TokenizedText | ItemError] = {}
    for prompt_name, texts in by_prompt.items():
        for piece in weighed(texts, _weight, _CHARS_AT_ONCE):
            if tokenized:
                finished()
                between()
            with gate.beside_others(finished):
                results = _tokenize_group(encoder, [key.text for key in piece], prompt_name)
            tokenized.update(zip(piece, results, strict=True))
    return tokenized


def _weight(key: TextKey) -> int:
    return max(len(key.text), _CHARS_AT_ONCE // _TEXTS_AT_ONCE)


def _tokenize_group(encoder: Encoder, texts: list[str], prompt_name: str | None) -> Sequence[TokenizedText | ItemError]:
    try:
        return encoder.tokenize(texts, prompt_name)
    except Exception as error:  # noqa: BLE001 - a tokenizer may raise anything for one text; its neighbours must not pay
        if len(texts) == 1:
            return [forward.failure_of(error)]
        return [result for text in texts for result in _tokenize_group(encoder, [text], prompt_name)]


def _refusal(options: Options, text: _Measured | ItemError) -> ItemError | None:
    if isinstance(text, ItemError):
        return text
    if text.truncated and not options.truncate:
        return ItemError(
            "input_too_long",
            f"This text has {'' if text.full_length_exact else 'at least '}{text.full_length} tokens; "
            f"the model takes at most {text.length}. "
            "Shorten it, split it, or set truncate to true.",
        )
    return None


def _forward(
    encoder: Encoder,
    texts: Sequence[TokenizedText],
    max_padded_tokens: int,
    *,
    gate: Gate,
    limit: Callable[[], int],
    between: Callable[[], None],
    finished: Callable[[], None],
) -> tuple[forward.Raw, EncodeStats]:
    groups: dict[int | None, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(text.prompt_length, []).append(index)
    batches = [
        [group[i] for i in batch]
        for group in groups.values()
        for batch in plan([texts[i].length for i in group], max_padded_tokens, encoder.row_widths)
    ]
    raw, stats = forward.run(encoder, texts, batches, gate=gate, limit=limit, between=between, finished=finished)
    broken = dict.fromkeys(np.flatnonzero(~np.isfinite(raw.vectors).all(axis=1)).tolist(), NON_FINITE)
    return forward.Raw(raw.vectors, broken | raw.failures), stats


def _learnt(texts: Mapping[TextKey, TokenizedText], raw: forward.Raw) -> dict[TextKey, CachedText]:
    """What the cache may keep; never a text that failed."""
    return {
        key: CachedText(raw.vectors[row].tobytes(), text.length, text.full_length, key.owner, text.full_length_exact)
        for row, (key, text) in enumerate(texts.items())
        if row not in raw.failures
    }


def _with_cached(raw: forward.Raw, cached: Mapping[TextKey, CachedText]) -> forward.Raw:
    """Their vectors behind those that were computed."""
    if not cached:
        return raw
    rows = [np.frombuffer(text.vector, dtype=np.float32) for text in cached.values()]
    return forward.Raw(np.concatenate([raw.vectors, np.stack(rows)]), raw.failures)


class _Job(NamedTuple):
    """What one item needs from the rows that were computed; `row` means something where there is no failure."""

    options: Options
    failure: ItemError | None
    row: int


def _outcomes(jobs: Sequence[_Job], texts: Sequence[_Measured], raw: forward.Raw) -> list[ItemVector]:
    outcomes = [
        ItemVector(vector=None, tokens=0, truncated=False, error=job.failure or raw.failures.get(job.row))
        for job in jobs
    ]
    by_options: dict[Options, list[int]] = {}
    for index, job in enumerate(jobs):
        if outcomes[index].error is None:
            by_options.setdefault(job.options, []).append(index)
    for options, indexes in by_options.items():
        rows = [jobs[index].row for index in indexes]
        for index, row, vector in zip(indexes, rows, finish(raw.vectors[rows], options), strict=True):
            text = texts[row]
            outcomes[index] = ItemVector(vector, text.length, text.truncated, cached=isinstance(text, CachedText))
    return outcomes


def finish(raw: Float32Array, options: Options) -> Float32Array:
    """Raw vectors [n, d] as requested, float32 [n, dimensions]: cut first, then scaled, in the library's order."""
    # A copy: a view would keep the raw vectors alive.
    vectors = raw[:, : options.dimensions].copy()
    if not options.normalize:
        return vectors
    # In float64, because squares of large float32 components overflow.
    wide = vectors.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    scaled: Float32Array = (wide / np.maximum(norms, _SMALLEST_NORM)[:, None]).astype(np.float32)
    return scaled
