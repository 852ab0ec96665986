"""Runs micro-batches; one that fails is halved until the text at fault is alone."""

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np

from tasks.gate import ALONE, Gate, nothing
from tasks.item import ItemError
from tasks.model.batching import plan
from tasks.model.encoder import (
    PASSES_AHEAD,
    Encoder,
    EncoderBroken,
    EncodeStats,
    Float32Array,
    TokenizedText,
    is_out_of_memory,
)
from tasks.model.packing import layout

_log = logging.getLogger(__name__)

OUT_OF_MEMORY = "out_of_memory"

T = TypeVar("T")
_Result: TypeAlias = Float32Array | ItemError


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

    Where the encoder can launch passes, they go two by two: the second one is begun before the first one is collected.
    Between such turns nothing is under way, because a hook may serve other texts, or wait for those who want to be
    alone. A batch of more padded tokens than `limit` says before its pass is planned anew. A text that alone runs out
    of memory beside other passes is tried once more when those have ended. Whatever a hook raises goes through to the
    caller.

    Raises:
        EncoderBroken: as the encoder raised it.
    """
    raw = Raw(np.zeros((len(texts), encoder.info.dimension), dtype=np.float32), {})
    pending = list(reversed(batches))
    passes = padded = tokens = lone = 0
    while pending:
        if passes:
            between()
        sizes, turn = _take(encoder, texts, pending, limit)
        passes += len(turn)
        padded += sum(sizes)
        tokens += sum(texts[i].length for batch in turn for i in batch)
        outcomes = _attempt(encoder, [[texts[i] for i in batch] for batch in turn], gate, finished)
        for batch, (result, alone) in zip(turn, outcomes, strict=True):
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


def _take(
    encoder: Encoder, texts: Sequence[TokenizedText], pending: list[list[int]], limit: Callable[[], int]
) -> tuple[list[int], list[list[int]]]:
    """The next batches, as many as have their passes begun before the first one is collected; their padded tokens."""
    sizes: list[int] = []
    turn: list[list[int]] = []
    while pending and len(turn) < (1 if encoder.launch is None else PASSES_AHEAD):
        batch, most = pending.pop(), limit()
        lengths = [texts[i].length for i in batch]
        computed = layout(lengths, encoder.row_widths, encoder.lone_widths).padded_tokens
        parts = plan(lengths, most, encoder.row_widths) if computed > most else []
        if len(parts) > 1:
            pending += [[batch[i] for i in part] for part in reversed(parts)]
            continue
        sizes.append(computed)
        turn.append(batch)
    return sizes, turn


def _attempt(
    encoder: Encoder, turn: Sequence[Sequence[TokenizedText]], gate: Gate, finished: Callable[[], None]
) -> list[tuple[_Result, bool]]:
    """The outcome of each pass, and whether it was alone. The gate stays open until the last one is collected."""
    outcomes: list[tuple[_Result, bool]] = []
    with gate.beside_others(finished) as alone:
        collects = [_begin(encoder, batch, alone=alone) for batch in turn]
        for collect in collects:
            if outcomes:
                finished()
            outcomes.append((collect(), alone))
    for number, (batch, (result, _)) in enumerate(zip(turn, outcomes, strict=True)):
        beside = not gate.single or len(turn) > 1
        if isinstance(result, ItemError) and result.code == OUT_OF_MEMORY and len(batch) == 1 and beside:
            outcomes[number] = _repeat(encoder, batch, gate, finished), True
    return outcomes


def _repeat(encoder: Encoder, batch: Sequence[TokenizedText], gate: Gate, waiting: Callable[[], None]) -> _Result:
    """The outcome of a pass while there is no other one."""
    with nullcontext() if gate.single else gate.alone(waiting):
        return _result(batch, lambda: encoder.forward(batch, alone=True))


def _begin(encoder: Encoder, batch: Sequence[TokenizedText], *, alone: bool) -> Callable[[], _Result]:
    """A pass that is under way, where the encoder has such passes, or over. What is returned gives its outcome."""
    launch = encoder.launch
    if launch is None:
        over = _result(batch, lambda: encoder.forward(batch, alone=alone))
        return lambda: over
    collect = _result(batch, lambda: launch(batch, alone=alone))
    return (lambda: collect) if isinstance(collect, ItemError) else partial(_result, batch, collect)


def _result(batch: Sequence[TokenizedText], step: Callable[[], T]) -> T | ItemError:
    try:
        return step()
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
