"""Walks of jobs by hand: python -m tests.simulation.jobs FIRST LAST [STEPS] [--without "DEED ..."]."""

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from tests.simulation.__main__ import quick_redis
from tests.simulation.jobs.walks import walk

STEPS = 200


def main() -> int:
    """Exit code 1 when a walk met a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("steps", type=int, nargs="?", default=STEPS)
    parser.add_argument("--without", default="", help="deeds that do not happen")
    parser.add_argument("--trace", action="store_true", help="where each violation was seen")
    logging.disable(logging.CRITICAL)
    asked = parser.parse_args()
    stats, bad, began = Counter[str](), list[int](), time.monotonic()
    with quick_redis() as client:
        for seed in range(asked.first, asked.last):
            try:
                walk(client, seed, asked.steps, stats=stats, without=asked.without)
            except Exception as error:  # noqa: BLE001 - the next seed may meet another one
                bad.append(seed)
                print(f"{type(error).__name__} {error} {getattr(error, '__notes__', '')}"[:900], flush=True)  # noqa: T201
                if asked.trace:
                    traceback.print_exc()
    took = time.monotonic() - began
    print(f"walks {asked.last - asked.first}, {took:.0f} s: {dict(sorted(stats.items()))}")  # noqa: T201
    print(f"violations: {bad or 'none'}")  # noqa: T201
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
