"""How fast is an encoder on this machine? The size of its passes, its rate, and a lease that lasts for a pass."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, Text
from tasks.item import UNLIMITED_TOKENS, cost

_log = logging.getLogger(__name__)

CPU_TOKENS = 1024
"""Padded tokens of one pass on a CPU. Small, so that its activations stay in the cache. Processor time beside this
budget, passages and queries: 512 1.04 and 1.13, 2,048 0.93 to 1.02 and 1.01 to 1.15, 4,096 1.09 and 1.25, 8,192 1.18
and 1.49. Of the two that are level the smaller one, because urgent texts wait for the end of a pass. With two streams
of one thread, passages per second: 512 152 to 158, 768 161 to 169, 1,024 166 to 175, 1,536 168 to 179, 2,048 167 to
175."""
CUDA_TOKENS = 16_384
"""The same on a card, which smaller passes do not fill."""

URGENT_WAIT_S = 0.08
"""A pass of work that stops for urgent texts should not take longer, as they wait for its end. Two in a row are well
within the 200 ms that a query may take beside bulk work, on a machine of any speed."""
QUIET_WAIT_S = 2 * URGENT_WAIT_S
"""The same while nobody sends urgent texts: the first one waits once. On a processor where a pass of 512 tokens takes
0.08 s, bulk work with 1,024 is 2 to 5 % faster."""
_LEAST_TOKENS = 512
"""With fewer, the texts of a pass differ more in length, and it costs more than it takes off a wait."""

LEASE_PER_PASS = 4
"""Leases are renewed when a pass has ended, so one must last for several, on a machine that may slow down."""

_LONGEST_TRIED = 8192
"""Tokens of the text that stands for the longest one where a model has no maximum."""

_LONG_ENOUGH_S = 0.25
_MAX_TEXTS = 1024


@dataclass(frozen=True, slots=True)
class PassBudget:
    """Padded tokens of one pass. `most`: what suits the device."""

    most: int

    def interrupted(self, tokens_per_s: float, *, urgent: bool) -> int:
        """Of work that stops for urgent texts, on a stream of this speed. `urgent`: such texts are to be expected."""
        wait_s = URGENT_WAIT_S if urgent else QUIET_WAIT_S
        return min(self.most, max(_LEAST_TOKENS, int(tokens_per_s * wait_s)))


def budget_for(device: str) -> PassBudget:
    """Of a pass on this device, `cpu` or `cuda:0`."""
    return PassBudget(CUDA_TOKENS if device.startswith("cuda") else CPU_TOKENS)


def measure_rate(encoder: Encoder, *, max_padded_tokens: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Estimated tokens per second, above 0.

    By the formula of `tasks.item.cost`, in which admission and claims are counted, so that cost divided by rate is
    seconds. Rounds double from one text until one of them takes a quarter of a second; the earlier ones warm the model
    up. A slow model is therefore not asked for a long round.
    """
    texts = 1
    while True:
        items = [Text(_passage(number)) for number in range(texts)]
        began = clock()
        encode(encoder, items, max_padded_tokens=max_padded_tokens)
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
    full = [Text(f"{n} {longest}") for n in range(max(1, max_padded_tokens // max_tokens))]
    began = time.monotonic()
    encode(encoder, full, max_padded_tokens=max_padded_tokens)
    needed_s = LEASE_PER_PASS * (time.monotonic() - began)
    if needed_s > least_s:
        _log.warning("one full pass takes %.1f s: the lease is %.0f s", needed_s / LEASE_PER_PASS, needed_s)
    return max(least_s, needed_s)


def _passage(number: int) -> str:
    # 15 to 105 words of ordinary length: a mixture of queries and passages, every text another one.
    words = 15 + (number * 37) % 91
    return " ".join(f"passage {number} speaks of queues and vectors" for _ in range(math.ceil(words / 7)))
