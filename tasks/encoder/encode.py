"""Texts in, vectors out: the one function that workers call, and its stages in their order."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple, TypeAlias

import numpy as np

from tasks.encoder.interface import (
    Encoder,
    EncoderBroken,
    EncodeStats,
    Float32Array,
    Text,
    Tokens,
    is_out_of_memory,
)
from tasks.encoder.micro_batches import MicroBatch, plan
from tasks.item import Options, TextError, Vector
from tasks.model import Model
from tasks.pieces import weighed
from tasks.unshown import unshown

_log = logging.getLogger(__name__)

NON_FINITE = TextError(
    "non_finite_vector", "The model gave a vector with NaN or infinite components. Change the text, or leave it out."
)
"""A vector like this is never a result, also when the component at fault would be cut off."""
NO_TOKENS = TextError(
    "no_tokens",
    "This text has no tokens: it is empty, or holds only characters that the model's tokenizer drops. Leave it out.",
)
OUT_OF_MEMORY = TextError(
    "out_of_memory", "The model ran out of memory on this text alone. Send a shorter text, or split it."
)

_SMALLEST_NORM = 1e-12
"""As in torch.nn.functional.normalize: a zero vector stays zero."""
_CHARS_AT_ONCE, _TEXTS_AT_ONCE = 2**18, 1024
"""Tokenized: about a twentieth of a second where texts have to be read to their ends (see `long_text`). A claim of bulk
work may hold tens of megabytes: meanwhile urgent texts would wait and its lease might end."""


@unshown("text")
class _Key(NamedTuple):
    """What makes a pass of its own; equal ones are encoded once."""

    prompt_name: str | None
    text: str


_Read: TypeAlias = Tokens | TextError


class PassLock:
    """Forward passes of several threads beside one another, or one alone.

    A pass of one text that does not fit into memory is repeated alone: beside others it may have failed for theirs.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = False

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """Waits until nobody is alone or waits for that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until everybody else has left. Not to be entered from within."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


def _nothing() -> None:
    """The hook that does nothing."""


def encode(
    encoder: Encoder,
    texts: Sequence[Text],
    *,
    max_padded_tokens: int,
    lock: PassLock | None = None,
    between: Callable[[], None] = _nothing,
    finished: Callable[[], None] = _nothing,
) -> tuple[list[Vector], EncodeStats]:
    """One outcome per text, in input order, and what it took. Equal texts go through the model once.

    Args:
        encoder: the loaded model.
        texts: none is fine.
        max_padded_tokens: of one forward pass.
        lock: of all threads that use the encoder at the same time; None: there is no other one.
        between: called before every forward pass except the first, and from time to time while texts are tokenized. It
            may take a while (serve more urgent texts), or raise to abandon the rest; its exception comes out of this
            call and what was computed is dropped.
        finished: called after every forward pass, failed ones included, and before `between` while texts are tokenized:
            the sign that work moves.

    Raises:
        EncoderBroken: this process cannot encode any more.
    """
    bad_options = {options: check_options(options, encoder.info) for options in {text.options for text in texts}}
    pairs = [(_Key(text.options.prompt_name, text.text), text.options) for text in texts]
    usable = dict.fromkeys(key for key, options in pairs if bad_options[options] is None)
    read = _tokenize(encoder, usable, between, finished)
    errors = [bad_options[options] or _refusal(options, read[key]) for key, options in pairs]
    rows: dict[_Key, int] = {}
    for (key, _), error in zip(pairs, errors, strict=True):
        if error is None:
            rows.setdefault(key, len(rows))
    passes = _Passes(encoder, [found for key in rows if isinstance(found := read[key], Tokens)], max_padded_tokens)
    passes.run(lock, between, finished)
    errors = [error or passes.errors.get(rows[key]) for (key, _), error in zip(pairs, errors, strict=True)]
    outcomes = [Vector(vector=None, tokens=0, truncated=False, error=error) for error in errors]
    by_options: dict[Options, list[int]] = {}
    for index, error in enumerate(errors):
        if error is None:
            by_options.setdefault(pairs[index][1], []).append(index)
    for options, indexes in by_options.items():
        of = [rows[pairs[index][0]] for index in indexes]
        for index, row, vector in zip(indexes, of, postprocess(passes.vectors[of], options), strict=True):
            outcomes[index] = Vector(vector, passes.texts[row].length, passes.texts[row].truncated)
    return outcomes, passes.stats


def check_options(options: Options, info: Model) -> TextError | None:
    """Why the model cannot serve these options; None when it can."""
    unfit = options.unfit(info.dimension, info.prompts)
    if unfit == "dimensions":
        return TextError(
            "invalid_dimensions",
            f"dimensions is {options.dimensions}; this model's vectors have {info.dimension}. "
            f"Use 1 to {info.dimension}, or leave it out.",
        )
    if unfit == "prompt_name":
        names = ", ".join(info.prompts) or "none"
        return TextError("unknown_prompt", f"The model has no prompt of this name. Known prompts: {names}.")
    return None


def _tokenize(
    encoder: Encoder, keys: Iterable[_Key], between: Callable[[], None], finished: Callable[[], None]
) -> dict[_Key, _Read]:
    by_prompt: dict[str | None, list[_Key]] = {}
    for key in keys:
        by_prompt.setdefault(key.prompt_name, []).append(key)
    read: dict[_Key, _Read] = {}
    for prompt_name, group in by_prompt.items():
        for some in weighed(group, lambda key: max(len(key.text), _CHARS_AT_ONCE // _TEXTS_AT_ONCE), _CHARS_AT_ONCE):
            if read:
                finished()
                between()
            found = _tokens(encoder, [key.text for key in some], prompt_name)
            read.update(zip(some, found, strict=True))
    return read


def _tokens(encoder: Encoder, texts: list[str], prompt_name: str | None) -> list[_Read]:
    try:
        found = encoder.tokenize(texts, prompt_name)
    except Exception as error:  # noqa: BLE001 - a tokenizer may raise anything for one text; its neighbours must not pay
        if len(texts) == 1:
            return [_error_of(error)]
        return [one for text in texts for one in _tokens(encoder, [text], prompt_name)]
    return [tokens if tokens.length or not encoder.needs_tokens else NO_TOKENS for tokens in found]


def _refusal(options: Options, read: _Read) -> TextError | None:
    if isinstance(read, TextError):
        return read
    if read.truncated and not options.truncate:
        return TextError(
            "input_too_long",
            f"This text has {'' if read.full_length_exact else 'at least '}{read.full_length} tokens; "
            f"the model takes at most {read.length}. "
            "Shorten it, split it, or set truncate to true.",
        )
    return None


class _Passes:
    """The forward passes of one call.

    Attributes:
        vectors: float32 [texts, dimension], row i of text i; zeros where there is none.
        errors: why a text has no vector, by its index.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[Tokens], max_padded_tokens: int) -> None:
        self.texts = texts
        self.vectors: Float32Array = np.zeros((len(texts), encoder.info.dimension), dtype=np.float32)
        self.errors: dict[int, TextError] = {}
        self.stats = EncodeStats(0, 0, 0)
        self._encoder = encoder
        self._max_padded_tokens = max_padded_tokens

    def run(self, lock: PassLock | None, between: Callable[[], None], finished: Callable[[], None]) -> None:
        """Runs them all. One that fails is halved until the text at fault is alone.

        Raises:
            EncoderBroken: as the encoder raised it.
        """
        pending = self._planned(range(len(self.texts)), self._encoder.row_widths)[::-1]
        while pending:
            if self.stats.forward_passes:
                between()
            batch = pending.pop()
            with lock.beside_others() if lock else nullcontext():
                result = self._pass(batch)
            if result is OUT_OF_MEMORY and len(batch.indexes) == 1 and lock:
                with lock.alone():
                    result = self._pass(batch)
            pending += self._settled(batch, result)[::-1]
            finished()

    def _settled(self, batch: MicroBatch, result: Float32Array | TextError) -> list[MicroBatch]:
        """Notes what came of a pass; what is to be tried instead, where texts have paid for others."""
        if isinstance(result, TextError):
            middle = len(batch.indexes) // 2
            if middle:
                halves = batch.indexes[:middle], batch.indexes[middle:]
                return [again for half in halves for again in self._planned(half, self._encoder.row_widths)]
            self.errors[batch.indexes[0]] = result
            return []
        finite = np.isfinite(result).all(axis=1)
        if batch.layout.shared and not finite.all():
            # A mask does not keep NaN of one text from another one in its row: 0 times NaN is NaN.
            return self._planned(batch.indexes, ())
        self.vectors[batch.indexes] = result
        self.errors |= {batch.indexes[at]: NON_FINITE for at in np.flatnonzero(~finite).tolist()}
        return []

    def _planned(self, indexes: Sequence[int], row_widths: tuple[int, ...]) -> list[MicroBatch]:
        groups: dict[int | None, list[int]] = {}
        for index in indexes:
            groups.setdefault(self.texts[index].prompt_length, []).append(index)
        return [
            MicroBatch([group[i] for i in batch.indexes], batch.layout)
            for group in groups.values()
            for batch in plan([self.texts[i].length for i in group], self._max_padded_tokens, row_widths)
        ]

    def _pass(self, batch: MicroBatch) -> Float32Array | TextError:
        texts = [self.texts[i] for i in batch.indexes]
        self.stats += EncodeStats(1, batch.layout.padded_tokens, sum(text.length for text in texts))
        try:
            return self._encoder.forward(texts, batch.layout)
        except EncoderBroken:
            raise
        except Exception as error:  # noqa: BLE001 - a library may raise anything for one text; its neighbours must not pay
            _log.warning("a forward pass over %d texts failed with %s", len(texts), type(error).__name__)
            return _error_of(error)


def _error_of(error: Exception) -> TextError:
    """Of a text that raised this alone. Only the error's type is named: its message may quote the text."""
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    message = f"The model could not encode this text ({type(error).__name__}). Submit it once more, then leave it out."
    return TextError("encoding_failed", message)


def postprocess(raw: Float32Array, options: Options) -> Float32Array:
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
