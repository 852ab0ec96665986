"""Everything that is measured, in order: rounds over the servers one after the other, then what is done once.

The rounds are the repetitions. Between two measurements of one server all the others have their turn, so a machine
that becomes slower for a while does so for everybody.
"""

import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from bench.baselines import DESIGNS
from bench.load.run import LoadError
from bench.load.wrk import WrkError
from bench.report.results import Results
from bench.report.table import REFERENCE
from bench.scenarios import batch, bulk, fidelity, ingestion, ledger, memory, million, passages, queries, submissions
from bench.scenarios.observed import Observed
from bench.scenarios.workload import Workload
from bench.servers import peers
from bench.servers.bare import measure_bare
from bench.servers.environments import NotAvailableError
from bench.servers.others import baseline
from bench.servers.product import product
from bench.servers.server import BARE, PRODUCT, Server
from bench.sizes import Sizes
from tasks.errors import EmbedqError

Scenario = Callable[[Workload, Sizes], Observed]

FOR_ALL: Mapping[str, Scenario] = {
    "passages": passages.synchronous,
    "queries-1": queries.one,
    "queries-32": queries.thirty_two,
    "queries-64": queries.sixty_four,
    "beside-bulk": bulk.queries_beside,
    "fidelity": fidelity.cosines,
}
FOR_PRODUCT: Mapping[str, Scenario] = {
    "bulk": bulk.whole_task,
    "silence": queries.after_silence,
    "beside-batch": batch.queries_beside,
    "ingest": ingestion.throughput,
}
ALONE = ("submit", "memory", "ledger")
LONG = ("ingest-million",)
"""Half an hour each: only when somebody asks for them."""
SCENARIOS = (*FOR_ALL, *FOR_PRODUCT, *ALONE, *LONG)
SERVERS = (BARE, PRODUCT, *DESIGNS)
PEERS = tuple(peers.PEERS)
"""In the rounds only if somebody asks for them: each needs an environment of its own."""
QUICK_SERVERS = (BARE, PRODUCT, REFERENCE)
FAILURES = (
    AssertionError,
    LoadError,
    WrkError,
    EmbedqError,
    httpx.HTTPError,
    psutil.Error,
    redis.RedisError,
    NotAvailableError,
)
"""What one measurement may die of without taking the others with it: a server that ended, an answer that never came."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        sizes: how long and how much.
        rounds: repetitions.
        servers: names out of `SERVERS` and `PEERS`; the environments of these peers have been made.
        peer: a server that runs already.
        scenarios: names out of `SCENARIOS`.
        settings: of the model, for embedq and the bare encoder.
        memory_settings: of the worker whose memory is watched.
    """

    sizes: Sizes
    rounds: int
    servers: Sequence[str]
    scenarios: Sequence[str]
    settings: Mapping[str, Any]
    memory_settings: Mapping[str, Any]
    peer: Server | None = None


class Suite:
    """Runs the options and fills `results`, whatever fails."""

    def __init__(self, options: Options, results: Results) -> None:
        self._options = options
        self._results = results
        self._seeds = itertools.count()

    def run(self) -> None:
        """Everything."""
        for number in range(1, self._options.rounds + 1):
            self._round(f"round {number} of {self._options.rounds}")
        once = {"memory": self._memory, "ledger": ledger.growing_jobs, "ingest-million": million.ingest}
        for scenario, measure in once.items():
            self._apart(scenario, measure)

    def _round(self, title: str) -> None:
        for name in self._options.servers:
            if not self._possible(name):
                continue
            _say(f"{title}: {name}")
            with self._survived(name, "as a whole"):
                self._bare() if name == BARE else self._server(name)
        if self._options.peer is not None:
            _say(f"{title}: {self._options.peer.base_url}")
            self._scenarios(self._options.peer)
        self._apart("submit", submissions.accepted)

    def _bare(self) -> None:
        sizes = self._options.sizes
        ingested = sizes.ingest_passages if "ingest" in self._options.scenarios else 0
        bare = measure_bare(sizes.load_s, self._options.settings, ingested=ingested)
        self._results.header["encoder"] = ", ".join(str(value) for value in bare["encoder"].values())
        self._results.add(BARE, Observed(bare["figures"]))

    def _server(self, name: str) -> None:
        open_peer = partial(peers.serving if name in PEERS else baseline, name)
        open_server = product if name == PRODUCT else open_peer
        with _folder() as folder, open_server(folder, self._options.settings) as server:
            self._scenarios(server)
            if server.is_product:
                start = {} if server.start_s is None else {"start_s": server.start_s}
                self._results.add(name, Observed({**start, **memory.resident(server.pids)}))

    def _scenarios(self, server: Server) -> None:
        workload = Workload(server, self._seeds)
        for scenario, measure in self._possible(server.name).items():
            self._measure(server.name, scenario, partial(measure, workload))

    def _possible(self, name: str) -> dict[str, Scenario]:
        """What was chosen of what this server can do. The bare encoder does all at once, as its ceiling."""
        both = {**FOR_ALL, **(FOR_PRODUCT if name in {PRODUCT, BARE} else {})}
        return {scenario: measure for scenario, measure in both.items() if scenario in self._options.scenarios}

    def _apart(self, scenario: str, measure: Callable[[Path, Sizes], Observed]) -> None:
        if scenario in self._options.scenarios and PRODUCT in self._options.servers:
            with _folder() as folder:
                self._measure(PRODUCT, scenario, partial(measure, folder))

    def _memory(self, folder: Path, sizes: Sizes) -> Observed:
        return memory.growth(folder, sizes, self._options.memory_settings)

    def _measure(self, server: str, scenario: str, measure: Callable[[Sizes], Observed]) -> None:
        _say(f"  {scenario}")
        with self._survived(server, scenario):
            self._results.add(server, measure(self._options.sizes))

    @contextmanager
    def _survived(self, server: str, scenario: str) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            reason = f"{type(error).__name__}: {str(error).strip()[:500]}"
            _say(f"  failed: {reason}")
            self._results.notes.append(f"{server}: {scenario} failed ({reason})")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="embedq-bench-") as name:
        yield Path(name)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
