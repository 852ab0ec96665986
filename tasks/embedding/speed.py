"""How fast is an encoder on this machine? Measured before a worker is ready: its rate, and a lease that lasts."""

import logging
import math
import time
from collections.abc import Callable

from tasks.gate import accompanied
from tasks.item import UNLIMITED_TOKENS, cost
from tasks.model.encoder import Encoder, TextItem
from tasks.model.encoding import encode

_log = logging.getLogger(__name__)

LEASE_PER_PASS = 4
"""Leases are renewed when a pass has ended, so one must last for several, on a machine that may slow down."""

_LONGEST_TRIED = 8192
"""Tokens of the text that stands for the longest one where a model has no maximum."""

_LONG_ENOUGH_S = 0.25
_MAX_TEXTS = 1024


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
