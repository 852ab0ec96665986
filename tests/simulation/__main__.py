"""The ledger's long tests, by hand: `make simulation`, or one of them.

python -m tests.simulation walks 0 200     weighted walks with these seeds
python -m tests.simulation mutants [TEXT]  scripts that are broken by rule; TEXT: those whose name holds it
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
from tests.simulation.mutants import EQUIVALENT, judged, mutants
from tests.simulation.walks import walk

STEPS = 200


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


def main() -> int:
    """Exit code 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["walks", "mutants"])
    parser.add_argument("given", nargs="*")
    asked = parser.parse_args()
    fine = True
    if asked.what != "mutants":
        fine = run_walks(*map(int, asked.given or (0, 200)))
    if asked.what != "walks":
        fine = run_mutants(" ".join(asked.given)) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
