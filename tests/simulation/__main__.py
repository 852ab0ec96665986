"""Long tests by hand: `make simulation`, or one of them.

python -m tests.simulation walks 0 200     weighted walks of the ledger with these seeds
python -m tests.simulation mutants [TEXT]  scripts that are broken by rule; TEXT: those whose name holds it
python -m tests.simulation jobs 0 100      walks of batches and ingestions
"""

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable

from tests.simulation import mutants, walks
from tests.simulation.conftest import quick_redis
from tests.simulation.jobs import walks as jobs

STEPS = 200


def run_walks(walk: Callable[..., Counter[str]], given: list[str], last: int) -> bool:
    """Whether no walk met a violation."""
    stats, bad = Counter[str](), list[int]()
    with quick_redis() as client:
        for seed in range(*map(int, given or (0, last))):
            try:
                stats += walk(client, seed, STEPS)
            except Exception as error:  # noqa: BLE001 - the next seed may meet another one
                bad.append(seed)
                said = f"seed {seed}: {type(error).__name__} {error} {getattr(error, '__notes__', '')}"
                print(said[:900], flush=True)  # noqa: T201
    print(f"walks: {dict(sorted(stats.items()))}; violations: {bad or 'none'}")  # noqa: T201
    return not bad


def run_mutants(text: str) -> bool:
    """Whether each one was noticed."""
    chosen = [mutant for mutant in mutants.mutants() if text in mutant.name]
    survivors = 0
    for mutant, killer in mutants.judged(chosen, os.cpu_count() or 1):
        if killer is None:
            survivors += 1
            print(f"SURVIVED {mutant.line + 1} {mutant.name}", flush=True)  # noqa: T201
    print(f"mutants: {len(chosen) - survivors} of {len(chosen)} noticed")  # noqa: T201
    return not survivors


def main() -> int:
    """Exit code 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["walks", "mutants", "jobs"])
    parser.add_argument("given", nargs="*")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    runs: dict[str, Callable[[], bool]] = {
        "walks": lambda: run_walks(walks.walk, asked.given, 200),
        "mutants": lambda: run_mutants(" ".join(asked.given)),
        "jobs": lambda: run_walks(jobs.walk, asked.given, 100),
    }
    fine = [runs[what]() for what in ([asked.what] if asked.what else runs)]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
