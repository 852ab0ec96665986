"""Everything that is measured, in order: rounds over the servers one after the other, then what is done once.

The rounds are the repetitions. Between two measurements of one server all the others have their turn, so a machine
that becomes slower for a while does so for everybody.
"""

import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from bench.report import BARE, PRODUCT, REFERENCE, Observed, Results
from bench.scenarios import bulk, fidelity, growth, ingest, online
from bench.scenarios.workload import Workload
from bench.servers import peers
from bench.servers.bare import measure_bare
from bench.servers.product import product
from bench.servers.server import Server
from bench.sizes import Sizes
from tasks.errors import EmbedqError

FOR_ALL: Mapping[str, Callable[[Workload, Sizes], Observed]] = {
    "passages": online.passages,
    "queries-1": partial(online.queries, 1),
    "queries-32": partial(online.queries, 32),
    "queries-64": partial(online.queries, 64),
    "beside-bulk": bulk.beside_bulk,
    "fidelity": fidelity.cosines,
}
FOR_PRODUCT: Mapping[str, Callable[[Workload, Sizes], Observed]] = {
    "bulk": bulk.whole_task,
    "silence": online.after_silence,
    "ingest": ingest.throughput,
}
LONG = "ingest-million"
"""Only when somebody asks for it."""
SCENARIOS = (*FOR_ALL, *FOR_PRODUCT, "submit", "memory", LONG)
SERVERS = (BARE, PRODUCT, REFERENCE, *peers.PEERS)
FAILURES = (
    AssertionError,
    BrokenProcessPool,
    EmbedqError,
    OSError,
    httpx.HTTPError,
    peers.NotAvailableError,
    psutil.Error,
    redis.RedisError,
)
"""What one measurement may die of without taking the others with it: a server that ended, an answer that never came."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        sizes: how long and how much.
        rounds: repetitions.
        servers: names out of `SERVERS`.
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
        self._apart("memory", partial(growth.memory, self._options.memory_settings))
        self._apart(LONG, ingest.million)

    def _round(self, title: str) -> None:
        for name in self._options.servers:
            if self._possible(name):
                _say(f"{title}: {name}")
                with self._survived(name, "as a whole"), _folder() as folder:
                    self._bare() if name == BARE else self._server(name, folder)
        self._apart("submit", online.submissions)

    def _bare(self) -> None:
        sizes = self._options.sizes
        ingested = sizes.passages if "ingest" in self._options.scenarios else 0
        figures, encoder = measure_bare(sizes.load_s, self._options.settings, ingested=ingested)
        self._results.header["encoder"] = encoder
        self._results.add(BARE, Observed(figures))

    def _server(self, name: str, folder: Path) -> None:
        start = product if name == PRODUCT else partial(peers.serving, name)
        with start(folder, self._options.settings) as server:
            self._scenarios(server)
            if server.start_s is not None:
                self._results.add(name, Observed({**growth.resident(server.pids), "start_s": server.start_s}))

    def _scenarios(self, server: Server) -> None:
        workload = Workload(server, self._seeds)
        for scenario, measure in self._possible(server.name).items():
            self._measure(server.name, scenario, partial(measure, workload))

    def _possible(self, name: str) -> dict[str, Callable[[Workload, Sizes], Observed]]:
        """What was chosen of what this server can do. The bare encoder does all at once, as its ceiling."""
        both = {**FOR_ALL, **(FOR_PRODUCT if name in {PRODUCT, BARE} else {})}
        return {scenario: measure for scenario, measure in both.items() if scenario in self._options.scenarios}

    def _apart(self, scenario: str, measure: Callable[[Path, Sizes], Observed]) -> None:
        if scenario in self._options.scenarios and PRODUCT in self._options.servers:
            with _folder() as folder:
                self._measure(PRODUCT, scenario, partial(measure, folder))

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
