"""How fast is an encoder on this machine? Measured before a worker is ready: passes, its rate, a lease that lasts."""

import logging
import math
import time
from collections.abc import Callable

from tasks.gate import accompanied
from tasks.item import UNLIMITED_TOKENS, cost
from tasks.model.batching import CPU_TOKENS, URGENT_WAIT_S, PassBudget
from tasks.model.device import release_card_memory
from tasks.model.encoder import PASSES_AHEAD, Encoder, EncoderBroken, TextItem, TokenizedText
from tasks.model.encoding import encode

_log = logging.getLogger(__name__)

LEASE_PER_PASS = 4
"""Leases are renewed when a pass has ended, so one must last for several, on a machine that may slow down."""

_LONGEST_TRIED = 8192
"""Tokens of the text that stands for the longest one where a model has no maximum."""

_LONG_ENOUGH_S = 0.25
_MAX_TEXTS = 1024

_FEWEST_TRIED, _MOST_TRIED = 2048, 65_536
"""Padded tokens of the passes that are tried on a card. Below, not even a small card is full; above, nobody gains."""
_TRIED_TEXT = 512
"""Tokens of a text in such a pass, or the model's maximum. Longer texts of as many padded tokens take longer, and a
model that needs too much memory for them gets them in smaller passes."""
_WORTH_IT = 1.05
"""Times the speed: with less of a gain a pass of twice the size is only longer."""
_ROUNDS = 2


def budget_for(
    encoder: Encoder,
    max_padded_tokens: int | None,
    *,
    clock: Callable[[], float] = time.perf_counter,
    release: Callable[[], None] = release_card_memory,
) -> PassBudget:
    """Of a pass: what the operator set; on a card what was measured; else what suits a CPU.

    Args:
        encoder: the loaded model.
        max_padded_tokens: as the operator set it, who means it.
        clock: in seconds.
        release: gives back what the passes of a measurement took of the card's memory.
    """
    if max_padded_tokens is not None:
        return PassBudget(max_padded_tokens)
    if not encoder.info.device.startswith("cuda"):
        return PassBudget(CPU_TOKENS, bounded=True)
    ahead = 1 if encoder.launch is None else PASSES_AHEAD
    try:
        return PassBudget(_measured_budget(encoder, URGENT_WAIT_S / ahead, clock), bounded=True, ahead=ahead)
    finally:
        release()


def _measured_budget(encoder: Encoder, longest_s: float, clock: Callable[[], float]) -> int:
    """Passes double until a card gets no faster, one takes longer than urgent texts should wait, or does not fit."""
    text = _text_of(encoder, min(encoder.info.max_tokens, _TRIED_TEXT))
    budget, speed, tokens = 0, 0.0, _FEWEST_TRIED
    while tokens <= _MOST_TRIED:
        batch = [text] * max(1, tokens // max(text.length, 1))
        try:
            seconds = _pass_s(encoder, batch, clock)
        except EncoderBroken:
            raise
        except Exception as error:  # noqa: BLE001 - out of memory, mostly; the self-test has shown that smaller ones work
            # All streams have a pass at the same time. Half of what they may take then is left to longer texts.
            budget = max(budget, _FEWEST_TRIED) // (2 * encoder.streams)
            _log.warning("a pass of %d tokens failed with %s", tokens, type(error).__name__)
            break
        faster = len(batch) * text.length / seconds
        if budget and (seconds > longest_s or faster < speed * _WORTH_IT):
            break
        budget, speed, tokens = tokens, faster, 2 * tokens
    _log.info("passes of up to %d tokens, about %.0f tokens/s one at a time", budget, speed)
    return budget


def _text_of(encoder: Encoder, most_tokens: int) -> TokenizedText:
    """A text of nearly so many tokens, and no more."""
    words = most_tokens
    while (text := encoder.tokenize(["word " * words], None)[0]).length > most_tokens and words > 1:
        words = words * 9 // 10
    return text


def _pass_s(encoder: Encoder, batch: list[TokenizedText], clock: Callable[[], float]) -> float:
    """Of the fastest of a few passes. The one before them makes what a library keeps of each shape."""
    encoder.forward(batch)
    seconds = []
    for _ in range(_ROUNDS):
        began = clock()
        encoder.forward(batch)
        seconds.append(clock() - began)
    return max(min(seconds), 1e-9)


def measure_rate(encoder: Encoder, *, max_padded_tokens: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Estimated tokens per second, above 0.

    By the formula of `tasks.item.cost`, in which admission and claims are counted, so that cost divided by rate is
    seconds. Rounds double from one text until one of them takes a quarter of a second; the earlier ones warm the model
    up. A slow model is therefore not asked for a long round. It is the rate of a stream beside others.
    """
    texts = 1
    with accompanied() as gate:
        while True:
            items = [TextItem(_passage(number)) for number in range(texts)]
            began = clock()
            encode(encoder, items, max_padded_tokens=max_padded_tokens, gate=gate)
            elapsed_s = clock() - began
            if elapsed_s >= _LONG_ENOUGH_S or texts >= _MAX_TEXTS:
                return sum(cost(item.text, encoder.info.max_tokens) for item in items) / elapsed_s
            texts *= 2


def lease_for(encoder: Encoder, *, max_padded_tokens: int, least_s: float) -> float:
    """Seconds of a lease that outlasts a full pass of one stream several times, at least `least_s`.

    With a shorter one long texts on a slow machine would look dead.
    """
    max_tokens = encoder.info.max_tokens
    if max_tokens == UNLIMITED_TOKENS:
        max_tokens = _LONGEST_TRIED
    longest = "word " * max_tokens
    full = [TextItem(f"{n} {longest}") for n in range(max(1, max_padded_tokens // max_tokens))]
    with accompanied() as gate:
        began = time.monotonic()
        encode(encoder, full, max_padded_tokens=max_padded_tokens, gate=gate)
        needed_s = LEASE_PER_PASS * (time.monotonic() - began)
    if needed_s > least_s:
        _log.warning("one full pass takes %.1f s: the lease is %.0f s", needed_s / LEASE_PER_PASS, needed_s)
    return max(least_s, needed_s)


def _passage(number: int) -> str:
    # 15 to 105 words of ordinary length: a mixture of queries and passages, every text another one.
    words = 15 + (number * 37) % 91
    return " ".join(f"passage {number} speaks of queues and vectors" for _ in range(math.ceil(words / 7)))
