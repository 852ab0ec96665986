"""Bodies for the scenarios: enough of them, none twice in a run, as a service may answer a repetition cheaply."""

import math
from collections.abc import Iterator

from bench import load, texts
from bench.load import Load, LoadResult
from bench.servers.server import Server
from bench.sizes import Sizes

PASSAGES_PER_REQUEST = 32
PASSAGE_CONNECTIONS = 8
PER_S = 10.0
"""Queries and health checks beside other work."""
_MIN_BODIES = 64
_MOST_PASSAGES = 50_000
"""Different ones in a load; if it needs more, they come again. Many times what a worker keeps of those it has seen."""


class Workload:
    """Makes bodies for one server; every call gives new ones."""

    def __init__(self, server: Server, seeds: Iterator[int]) -> None:
        self.server = server
        self._seeds = seeds

    def queries(self, count: int) -> list[str]:
        """Bodies with one short text each."""
        return [texts.body(self.server.model, text) for text in texts.queries(count, next(self._seeds))]

    def bulk(self, count: int) -> list[str]:
        """Passages, for bulk tasks."""
        return texts.passages(count, next(self._seeds))

    def passages(self, count: int) -> list[str]:
        """Bodies with 32 passages each."""
        count = min(count, _MOST_PASSAGES // PASSAGES_PER_REQUEST)
        deck = self.bulk(count * PASSAGES_PER_REQUEST)
        starts = range(0, len(deck), PASSAGES_PER_REQUEST)
        return [texts.body(self.server.model, deck[start : start + PASSAGES_PER_REQUEST]) for start in starts]

    def query_load(self, connections: int, sizes: Sizes) -> Load:
        """A closed loop of queries, after a warm-up."""
        warm = load.run(self._closed(self.queries(2000), connections, sizes.warm_s))
        return self._closed(self.queries(_enough(warm, sizes.load_s, connections)), connections, sizes.load_s)

    def passage_load(self, seconds: float, warm_s: float) -> Load:
        """The same of passages."""
        warm = load.run(self._closed(self.passages(_MIN_BODIES), 2, warm_s))
        bodies = self.passages(_enough(warm, seconds, PASSAGE_CONNECTIONS))
        return self._closed(bodies, PASSAGE_CONNECTIONS, seconds)

    def steady_queries(self, seconds: float, per_s: float = PER_S) -> Load:
        """Queries at a rate, whatever the server does meanwhile."""
        bodies = self.queries(math.ceil(per_s * seconds) + 1)
        return Load(self._url, bodies, rate_per_s=per_s, seconds=seconds)

    def health_checks(self, seconds: float) -> Load:
        """Ten a second."""
        return Load(self.server.health_url, rate_per_s=PER_S, seconds=seconds)

    @property
    def _url(self) -> str:
        return f"{self.server.base_url}/embeddings"

    def _closed(self, bodies: list[str], connections: int, seconds: float) -> Load:
        return Load(self._url, bodies, connections=connections, seconds=seconds)


def _enough(warm: LoadResult, seconds: float, connections: int) -> int:
    """Bodies for a load that may turn out to be three times as fast as the warm-up."""
    return max(_MIN_BODIES, math.ceil(3 * warm.rate_per_s * seconds) + 2 * connections)
