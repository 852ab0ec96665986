"""How fast is this worker? Measured once, in the unit of admission and claims: estimated tokens."""

import math
import time
from collections.abc import Callable

from tasks.model.encoder import Encoder
from tasks.model.encoding import encode
from tasks.model.types import TextItem

_LONG_ENOUGH_S = 0.25
_MAX_TEXTS = 1024
_BYTES_PER_TOKEN = 4


def measure_rate(encoder: Encoder, *, max_padded_tokens: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Estimated tokens per second, above 0.

    A text's estimate is ceil(UTF-8 bytes / 4), at least 1 and at most the model's maximum: the formula by which costs
    are charged elsewhere, so that cost divided by rate is seconds. Rounds double from one text until one of them takes
    a quarter of a second; the earlier ones warm the model up. A slow model is therefore not asked for a long round.
    """
    texts = 1
    while True:
        round_texts = [_passage(number) for number in range(texts)]
        started = clock()
        encode(encoder, [TextItem(text) for text in round_texts], max_padded_tokens=max_padded_tokens)
        elapsed_s = clock() - started
        if elapsed_s >= _LONG_ENOUGH_S or texts >= _MAX_TEXTS:
            return sum(_estimate(text, encoder.info.max_tokens) for text in round_texts) / elapsed_s
        texts *= 2


def _passage(number: int) -> str:
    # 15 to 105 words of ordinary length: a mixture of queries and passages, every text another one.
    words = 15 + (number * 37) % 91
    return " ".join(f"passage {number} speaks of queues and vectors" for _ in range(math.ceil(words / 7)))


def _estimate(text: str, max_tokens: int) -> int:
    return max(1, min(math.ceil(len(text.encode()) / _BYTES_PER_TOKEN), max_tokens))
