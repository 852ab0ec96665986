"""`python -m bench`: the speed report. `make bench` runs it."""

import argparse
import dataclasses
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.load.limit import measure_limit
from bench.load.run import CHECKOUT, generator_name
from bench.report import document, machine, plot, table, timeline
from bench.report.results import Results
from bench.scenarios import million
from bench.servers import peers
from bench.servers.environments import NotAvailableError
from bench.servers.model_settings import chosen
from bench.servers.others import peer
from bench.sizes import NORMAL, QUICK, for_seconds
from bench.suite import LONG, PEERS, QUICK_SERVERS, SCENARIOS, SERVERS, Options, Suite
from tasks.errors import EmbedqError
from worker_config.settings import CONFIGURATION_EXIT_CODE, DEFAULT_MODEL, SettingsError, load_settings

_RESULTS = CHECKOUT / "bench" / "results"
_DOCUMENT = CHECKOUT / "docs" / "performance.md"
_INTERRUPTED = 128 + signal.SIGINT
_PLOT = CHECKOUT / "docs" / "performance.svg"
_TIMELINE = CHECKOUT / "docs" / "ingestion.svg"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints, or draws what was measured before; the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.write_docs:
            return _write_docs(Results.load(parsed.write_docs))
        if parsed.write_timeline:
            return _write_timeline(Results.load(parsed.write_timeline))
        options = _options(parsed)
    except (SettingsError, document.NoSectionError, plot.NoPlotError, OSError) as error:
        print(error, file=sys.stderr)
        return CONFIGURATION_EXIT_CODE
    return _run(options, parsed.out or _RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json")


def _run(options: Options, path: Path) -> int:
    missing = _missing_peers(options)
    options = dataclasses.replace(options, servers=[name for name in options.servers if name not in missing])
    results = Results(_header(options))
    if told := _peers(options.servers, missing):
        results.header["peers"] = told
    status = 0
    try:
        Suite(options, results).run()
    except KeyboardInterrupt:
        results.notes.append("stopped before the end")
        status = _INTERRUPTED
    results.save(path)
    print(table.render(results))
    print(f"written to {path}", file=sys.stderr)
    return status


def _missing_peers(options: Options) -> Mapping[str, str]:
    """Makes the environments before anything is measured: peers that this machine cannot have, and why."""
    missing = {}
    for name in options.servers:
        try:
            if name in PEERS:
                peers.make(name, options.settings)
        except (NotAvailableError, EmbedqError) as error:
            missing[name] = str(error)
    return missing


def _peers(servers: Sequence[str], missing: Mapping[str, str]) -> str:
    there = [f"{name} ({peers.version(name)})" for name in servers if name in PEERS]
    away = [f"{name} ({peers.version(name)}) is not available: {reason}" for name, reason in missing.items()]
    return "; ".join([*there, *away])


def _write_docs(results: Results) -> int:
    document.write_section(_DOCUMENT, table.render(results))
    plot.draw(results, _PLOT)
    print(f"{_DOCUMENT} and {_PLOT} are new", file=sys.stderr)
    return 0


def _write_timeline(results: Results) -> int:
    samples = results.series.get(million.SERIES)
    if not samples:
        raise plot.NoPlotError(f"These results are not of the scenario {million.SERIES}.")
    timeline.draw(samples, _TIMELINE)
    print(f"{_TIMELINE} is new", file=sys.stderr)
    return 0


def _header(options: Options) -> dict[str, Any]:
    limit = measure_limit(options.sizes.warm_s)
    generator = f"{generator_name()}, {limit.rate_per_s:,.0f} requests/s against a server that does nothing"
    changed = ", ".join(f"{name}={value}" for name, value in options.settings.items())
    seconds = options.sizes.load_s
    how = "too short for figures that mean something" if seconds <= QUICK.load_s else f"loads of {seconds:g} s"
    return {
        **machine.describe(),
        "load generator": generator,
        "settings": changed or "defaults",
        "run": f"{how}, rounds: {options.rounds}",
    }


def _options(parsed: argparse.Namespace) -> Options:
    settings = chosen(load_settings())
    servers = _servers(parsed)
    sizes = QUICK if parsed.quick else NORMAL
    if parsed.seconds:
        sizes = for_seconds(sizes, parsed.seconds)
    if parsed.rows:
        sizes = dataclasses.replace(sizes, ledger_rows=tuple(parsed.rows))
    if parsed.documents:
        sizes = dataclasses.replace(sizes, ingest_documents=parsed.documents)
    return Options(
        sizes=sizes,
        rounds=parsed.repeat or (1 if parsed.quick else 3),
        servers=servers,
        scenarios=_scenarios(parsed.only, servers),
        settings=settings,
        memory_settings=settings if parsed.memory_model == "real" else {**settings, "compute": "fake"},
        peer=peer(parsed.url, parsed.model) if parsed.url else None,
    )


def _servers(parsed: argparse.Namespace) -> Sequence[str]:
    default = () if parsed.url else QUICK_SERVERS if parsed.quick else SERVERS
    return list(dict.fromkeys([*(parsed.servers or default), *(PEERS if parsed.peers else ())]))


def _scenarios(only: Sequence[str] | None, servers: Sequence[str]) -> Sequence[str]:
    """With `fidelity` wherever there is a peer: without it nobody knows whether the peer does the same work."""
    chosen_ones = only or [name for name in SCENARIOS if name not in LONG]
    return chosen_ones if set(PEERS).isdisjoint(servers) else list(dict.fromkeys([*chosen_ones, "fidelity"]))


def _http_url(text: str) -> str:
    if not text.startswith("http://"):
        raise argparse.ArgumentTypeError("an http:// URL such as http://127.0.0.1:8000/v1; TLS would be measured too")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures embedq, the usual designs and the bare encoder in one run. Close everything else first.",
    )
    parser.add_argument("--quick", action="store_true", help="one short round, to see that everything runs")
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds (default: 3; quick: 1)")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument(
        "--servers",
        nargs="+",
        choices=(*SERVERS, *PEERS),
        metavar="SERVER",
        help=f"{', '.join(SERVERS)}; peers: {', '.join(PEERS)}",
    )
    parser.add_argument("--peers", action="store_true", help="all peers too, each in an environment that is made once")
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"of one load of queries (default: {NORMAL.load_s:g}); other loads in proportion",
    )
    parser.add_argument(
        "--url", type=_http_url, help="a running OpenAI-compatible server to measure, alone or beside --servers"
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the name to send to --url (default: %(default)s)")
    parser.add_argument(
        "--memory-model", choices=("fake", "real"), default="fake", help="whose memory is watched (default: fake)"
    )
    parser.add_argument("--rows", nargs="+", type=int, metavar="N", help="sizes of the jobs for the ledger")
    parser.add_argument("--documents", type=int, metavar="N", help="number of documents of ingest-million")
    parser.add_argument("--out", type=Path, help="JSON file (default: in bench/results, named by the time)")
    parser.add_argument("--write-docs", type=Path, metavar="RESULTS", help="fill docs/performance.md and its plot")
    parser.add_argument(
        "--write-timeline", type=Path, metavar="RESULTS", help="draw docs/ingestion.svg (ingest-million)"
    )
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    sys.exit(main())
