"""The ledger's long tests, by hand: `make simulation`, or one of them.

python -m tests.simulation walks 0 200     weighted walks with these seeds
python -m tests.simulation machine 200     examples of the rules in any order
python -m tests.simulation mutants [TEXT]  scripts that are broken by rule; TEXT: those whose name holds it
python -m tests.simulation kills 30        seconds of killed processes
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import RedisServer
from tests.simulation import kills, machine
from tests.simulation.mutants import EQUIVALENT, judged, mutants
from tests.simulation.walks import walk

STEPS, STEPS_OF_EXAMPLE = 200, 50


@contextmanager
def quick_redis() -> Iterator[Any]:
    """A client of a Redis of its own that keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), unix_socket=True).start()
        try:
            with server.client() as client:
                client.config_set("appendonly", "no")
                yield client
        finally:
            server.stop()


def run_walks(first: int, last: int) -> bool:
    """Whether no walk met a violation; the first one is raised."""
    stats = Counter[str]()
    with quick_redis() as client:
        for seed in range(first, last):
            try:
                walk(client, seed, STEPS, stats=stats)
            except Exception:
                print(f"seed {seed}")  # noqa: T201
                raise
    print(f"walks: {dict(stats)}")  # noqa: T201
    return True


def run_machine(examples: int) -> bool:
    """The same of the rules in any order."""
    with quick_redis() as client:
        print(f"machine: {dict(machine.run(client, examples, STEPS_OF_EXAMPLE))}")  # noqa: T201
    return True


def run_mutants(text: str) -> bool:
    """Whether each one was noticed."""
    chosen = [mutant for mutant in mutants() if text in mutant.name and mutant.name not in EQUIVALENT]
    survivors = 0
    for mutant, killer in judged(chosen, os.cpu_count() or 1):
        if killer is None:
            survivors += 1
            print(f"SURVIVED {mutant.line + 1} {mutant.name}", flush=True)  # noqa: T201
    print(f"mutants: {len(chosen) - survivors} of {len(chosen)} noticed")  # noqa: T201
    return not survivors


def run_kills(seconds: float) -> bool:
    """Whether all that was accepted was done once."""
    found = kills.run(seconds)
    print(f"kills: {found}")  # noqa: T201
    return not (found.lost or found.open or found.failed or found.doubled or found.leases)


def main() -> int:
    """Exit code 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["walks", "machine", "mutants", "kills"])
    parser.add_argument("numbers", nargs="*")
    asked = parser.parse_args()
    given = asked.numbers
    runs = {
        "walks": lambda: run_walks(*map(int, given or (0, 200))),
        "machine": lambda: run_machine(*map(int, given or (200,))),
        "kills": lambda: run_kills(*map(float, given or (30,))),
        "mutants": lambda: run_mutants(" ".join(given)),
    }
    chosen = [asked.what] if asked.what else list(runs)
    bad = [name for name in chosen if not runs[name]()]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
