"""Runs micro-batches; one that fails is halved until the text at fault is alone."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.gate import ALONE, Gate, nothing
from tasks.item import ItemError
from tasks.model.encoder import Encoder, EncoderBroken, EncodeStats, Float32Array, TokenizedText, is_out_of_memory
from tasks.model.packing import layout

_log = logging.getLogger(__name__)

OUT_OF_MEMORY = "out_of_memory"


def unlimited() -> int:
    """The limit that is none."""
    return sys.maxsize


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """What came out of the model.

    Attributes:
        vectors: float32 [texts, dimension], row i of text i; zeros where there is none.
        failures: why a text has no vector, by its index.
    """

    vectors: Float32Array
    failures: dict[int, ItemError]


def run(
    encoder: Encoder,
    texts: Sequence[TokenizedText],
    batches: Sequence[list[int]],
    *,
    gate: Gate = ALONE,
    limit: Callable[[], int] = unlimited,
    between: Callable[[], None] = nothing,
    finished: Callable[[], None] = nothing,
) -> tuple[Raw, EncodeStats]:
    """The raw vector, or the failure, of every text; `batches` name them by their indexes.

    A batch of more padded tokens than `limit` says before its pass is halved. A text that alone runs out of memory
    beside other passes is tried once more when those have ended. Whatever a hook raises goes through to the caller.

    Raises:
        EncoderBroken: as the encoder raised it.
    """
    raw = Raw(np.zeros((len(texts), encoder.info.dimension), dtype=np.float32), {})
    pending = list(reversed(batches))
    passes = padded = tokens = lone = 0
    while pending:
        if passes:
            between()
        batch = pending.pop()
        while (computed := _padded(encoder, texts, batch)) > limit() and len(batch) > 1:
            middle = len(batch) // 2
            pending.append(batch[middle:])
            batch = batch[:middle]
        passes += 1
        padded += computed
        tokens += sum(texts[i].length for i in batch)
        result, alone = _attempt(encoder, [texts[i] for i in batch], gate, finished)
        lone += alone and encoder.streams > 1
        if not isinstance(result, ItemError):
            raw.vectors[batch] = result
        elif len(batch) == 1:
            raw.failures[batch[0]] = result
        else:
            middle = len(batch) // 2
            pending += [batch[middle:], batch[:middle]]
        finished()
    return raw, EncodeStats(passes, padded, tokens, lone)


def _padded(encoder: Encoder, texts: Sequence[TokenizedText], batch: Sequence[int]) -> int:
    lengths = [texts[i].length for i in batch]
    return layout(lengths, encoder.row_tokens, encoder.lone_widths).padded_tokens


def _attempt(
    encoder: Encoder, batch: Sequence[TokenizedText], gate: Gate, waiting: Callable[[], None]
) -> tuple[Float32Array | ItemError, bool]:
    """The outcome, and whether the pass was alone."""
    with gate.beside_others(waiting) as alone:
        result = _pass(encoder, batch, alone=alone)
    if isinstance(result, ItemError) and result.code == OUT_OF_MEMORY and len(batch) == 1 and not gate.single:
        with gate.alone(waiting):
            return _pass(encoder, batch, alone=True), True
    return result, alone


def _pass(encoder: Encoder, batch: Sequence[TokenizedText], *, alone: bool) -> Float32Array | ItemError:
    try:
        return encoder.forward(batch, alone=alone)
    except EncoderBroken:
        raise
    except Exception as error:  # noqa: BLE001 - a library may raise anything for one text; its neighbours must not pay
        _log.warning("a forward pass over %d texts failed with %s", len(batch), type(error).__name__)
        return failure_of(error)


def failure_of(error: Exception) -> ItemError:
    """The failure of a text that raised this alone. Only the error's type is named: its message may quote the text."""
    if is_out_of_memory(error):
        return ItemError(
            OUT_OF_MEMORY, "The model ran out of memory on this text alone. Send a shorter text, or split it."
        )
    return ItemError("encoding_failed", f"The model could not encode this text ({type(error).__name__}).")
