"""How much does a claim take? By the speed of its stream, in estimated tokens per second, and by who waits."""

import math
import time
from collections.abc import Callable

from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, Text
from tasks.item import cost
from tasks.ledger.overview import PIECE_S
from tasks.worker.claim_loop import ClaimSize

QUERY_CLAIM_S = 0.1
"""Of work in one claim of the online lane while queries come. Less than of bulk work, as the first text of a claim
waits for its last one. The other streams take the rest."""
LIST_PIECES = 4
"""Of full size in one claim of the online lane while nobody sends queries. Lists of 32 passages from 8 callers,
medians of five rounds: 67.5 passages/s with 2, 73.5 with 4, 74.4 with 6, 69.8 with 10."""
BULK_PIECES = 24
"""Of full size in one claim of the bulk lane. With more texts to sort passes are fuller and padded less: 44 passages at
a time took 3 % longer than 88 and 12 a seventh longer than 128, and an ingestion with claims of 8 pieces 7 % longer
than with 24. Queries do not wait for its end."""

_WEIGHT = 0.2
_FULL_S, _SLOW_S = 0.05, 0.25

CPU_TOKENS = 1024
"""Padded tokens of one pass on a CPU. Small, so that its activations stay in the cache. Processor time beside this
budget, passages and queries: 512 1.04 and 1.13, 2,048 0.93 to 1.02 and 1.01 to 1.15, 4,096 1.09 and 1.25, 8,192 1.18
and 1.49. Of the two that are level the smaller one, because urgent texts wait for the end of a pass. With two streams
of one thread, passages per second: 512 152 to 158, 768 161 to 169, 1,024 166 to 175, 1,536 168 to 179, 2,048 167 to
175."""
CUDA_TOKENS = 16_384
"""The same on a card, which smaller passes do not fill."""
PASS_WAIT_S = 0.1
"""A pass should not take longer while queries come, as they wait for its end. Two in a row are the 200 ms that a query
may take beside bulk work, on a machine of any speed. While none come it may take twice as long: on a processor where a
pass of 512 tokens takes 0.08 s, bulk work with 1,024 is 2 to 5 % faster."""
_LEAST_TOKENS = 512
"""With fewer, the texts of a pass differ more in length, and it costs more than it takes off a wait."""

_LONG_ENOUGH_S = 0.25
_MAX_TEXTS = 1024


class Speed:
    """Of one stream: a moving average over claims that kept the machine busy.

    A lone query says nothing about the speed of the machine: its claim is mostly overhead, so claims of less than 50 ms
    are ignored. One that is small and took a quarter of a second is not: the speed was too high.
    """

    def __init__(self, tokens_per_s: float, max_padded_tokens: int = CPU_TOKENS) -> None:
        self.tokens_per_s = max(tokens_per_s, 1.0)
        self._max_padded_tokens = max_padded_tokens

    def measured(self, cost: int, seconds: float) -> None:
        """Texts of `cost` estimated tokens went through the model in `seconds`.

        Only texts that did: equal ones are encoded once, refused ones never, and neither makes a machine faster.
        """
        if cost <= 0 or seconds <= 0 or (cost < _FULL_S * self.tokens_per_s and seconds < _SLOW_S):
            return
        self.tokens_per_s += _WEIGHT * (cost / seconds - self.tokens_per_s)
        self.tokens_per_s = max(self.tokens_per_s, 1.0)

    def claim_size(self, *, beside_queries: bool) -> ClaimSize:
        """How much to claim while queries come, or while nobody sends any."""
        return ClaimSize(
            bulk_cost=self._cost(BULK_PIECES * PIECE_S),
            online_cost=self.small_cost if beside_queries else self._cost(LIST_PIECES * PIECE_S),
            rate=self.tokens_per_s,
        )

    @property
    def small_cost(self) -> int:
        """A piece of several texts that costs as much is no query, and queries do not wait for its end."""
        return self._cost(QUERY_CLAIM_S)

    def pass_tokens(self, *, beside_queries: bool) -> int:
        """Padded tokens of one pass while queries come, or while nobody sends any."""
        wait_s = PASS_WAIT_S if beside_queries else 2 * PASS_WAIT_S
        return min(self._max_padded_tokens, max(_LEAST_TOKENS, self._cost(wait_s)))

    def _cost(self, seconds: float) -> int:
        return max(1, int(self.tokens_per_s * seconds))


def pass_budget(device: str) -> int:
    """Padded tokens of a pass that suit this device, `cpu` or `cuda:0`."""
    return CUDA_TOKENS if device.startswith("cuda") else CPU_TOKENS


def measure_rate(encoder: Encoder, *, max_padded_tokens: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Estimated tokens per second, above 0, by the formula of `tasks.item.cost`: cost divided by rate is seconds.

    Rounds double from one text until one of them takes a quarter of a second: the earlier ones warm the model up, and a
    slow model is not asked for a long round.
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


def _passage(number: int) -> str:
    # 15 to 105 words of ordinary length: a mixture of queries and passages, every text another one.
    words = 15 + (number * 37) % 91
    return " ".join(f"passage {number} speaks of queues and vectors" for _ in range(math.ceil(words / 7)))
