"""`python -m bench`: the speed report. `make bench` runs it."""

import argparse
import dataclasses
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.load import CHECKOUT
from bench.report import BARE, PRODUCT, REFERENCE, Results, machine
from bench.servers import peers
from bench.servers.product import model_settings
from bench.sizes import NORMAL, QUICK
from bench.suite import LONG, SCENARIOS, SERVERS, Options, Suite
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE
from worker_config.settings import SettingsError

_RESULTS = CHECKOUT / "bench" / "results"
_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; the exit code."""
    parsed = parser().parse_args(arguments)
    try:
        chosen = options(parsed)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return CONFIGURATION_EXIT_CODE
    results = Results(machine())
    results.header["peers"] = ", ".join(peers.pins()[name][0] for name in chosen.servers if name in peers.PEERS)
    results.header["settings"] = ", ".join(f"{name}={value}" for name, value in chosen.settings.items()) or "defaults"
    results.header["run"] = f"loads of {chosen.sizes.load_s:g} s, rounds: {chosen.rounds}"
    status = 0
    try:
        Suite(chosen, results).run()
    except KeyboardInterrupt:
        results.notes.append("stopped before the end")
        status = _INTERRUPTED
    path = parsed.out or _RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    results.save(path)
    print(results.table())
    print(f"written to {path}", file=sys.stderr)
    return status


def options(parsed: argparse.Namespace) -> Options:
    """What the words chose. With a peer comes `fidelity`: or nobody knows whether the peer does the same work."""
    settings = model_settings()
    sizes = QUICK if parsed.quick else NORMAL
    if parsed.seconds:
        sizes = sizes.lasting(parsed.seconds)
    if parsed.documents:
        sizes = dataclasses.replace(sizes, documents=parsed.documents)
    servers = parsed.servers or [BARE, PRODUCT, REFERENCE, *(peers.PEERS if parsed.peers else ())]
    scenarios = parsed.only or [name for name in SCENARIOS if name != LONG]
    return Options(
        sizes=sizes,
        rounds=parsed.repeat or (1 if parsed.quick else 3),
        servers=servers,
        scenarios=scenarios if set(peers.PEERS).isdisjoint(servers) else [*scenarios, "fidelity"],
        settings=settings,
        memory_settings=settings if parsed.memory_model == "real" else {**settings, "compute": "fake"},
    )


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures embedq, the usual design and the bare encoder in one run. Close everything else first.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="one short round, to see that everything runs")
    add("--repeat", type=int, metavar="N", help="rounds (default: 3; quick: 1)")
    add("--only", nargs="+", choices=SCENARIOS, metavar="SCENARIO", help=", ".join(SCENARIOS))
    add("--servers", nargs="+", choices=SERVERS, metavar="SERVER", help=", ".join(SERVERS))
    add("--peers", action="store_true", help="without --servers: all peers too")
    seconds = f"of one load of queries (default: {NORMAL.load_s:g}); other loads in proportion"
    add("--seconds", type=float, metavar="S", help=seconds)
    add("--memory-model", choices=("fake", "real"), default="fake", help="whose memory is watched (default: fake)")
    add("--documents", type=int, metavar="N", help=f"number of documents of {LONG}")
    add("--out", type=Path, help="JSON file (default: in bench/results, named by the time)")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was started is stopped
    sys.exit(main())
