"""Bodies for the scenarios: enough of them, none twice in a run, as a service may answer a repetition cheaply."""

import itertools
import math
from collections.abc import Iterator

from bench import texts
from bench.load.plan import Load, LoadResult
from bench.load.run import run_light, run_raw
from bench.servers.server import Server

PASSAGES_PER_REQUEST = 32
_MOST_PASSAGES = 50_000
"""Different ones in a load; if it needs more, they come again. Many times what a worker keeps of those it has seen."""
_MIN_BODIES = 64


class Workload:
    """Makes bodies for one server; every call gives new ones."""

    def __init__(self, server: Server, seeds: Iterator[int] | None = None) -> None:
        self.server = server
        self._seeds = seeds or itertools.count()

    def queries(self, count: int) -> list[str]:
        """Bodies with one short text each."""
        return [texts.body(self.server.model, text) for text in texts.queries(count, next(self._seeds))]

    def passages(self, count: int) -> list[str]:
        """Bodies with 32 passages each."""
        seed = next(self._seeds)
        deck = texts.passages(min(count * PASSAGES_PER_REQUEST, _MOST_PASSAGES), seed)
        lists = texts.groups(deck, PASSAGES_PER_REQUEST, count, seed)
        return [texts.body(self.server.model, group) for group in lists]

    def bulk(self, count: int) -> list[str]:
        """Passages for bulk tasks."""
        return texts.passages(count, next(self._seeds))

    def query_load(self, connections: int, seconds: float, warm: LoadResult) -> Load:
        """A closed loop of queries with enough bodies, judged by a result of the warm-up."""
        bodies = self.queries(enough(warm, seconds, connections))
        return Load(self.server.embeddings_url, bodies, connections=connections, seconds=seconds)

    def passage_load(self, connections: int, seconds: float, warm: LoadResult) -> Load:
        """The same of passages."""
        bodies = self.passages(enough(warm, seconds, connections))
        return Load(self.server.embeddings_url, bodies, connections=connections, seconds=seconds)

    def warm_queries(self, connections: int, seconds: float) -> LoadResult:
        """Queries that nobody counts."""
        return run_light(Load(self.server.embeddings_url, self.queries(2000), connections=connections, seconds=seconds))

    def warm_passages(self, seconds: float) -> LoadResult:
        """Passages that nobody counts."""
        return run_raw(Load(self.server.embeddings_url, self.passages(_MIN_BODIES), connections=2, seconds=seconds))


def enough(warm: LoadResult, seconds: float, connections: int) -> int:
    """Bodies for a load that may turn out to be three times as fast as the warm-up."""
    return max(_MIN_BODIES, math.ceil(3 * warm.rate_per_s * seconds) + 2 * connections)
