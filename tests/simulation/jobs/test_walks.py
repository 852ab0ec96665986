"""Batches and ingestions come to what was asked for, whatever dies, goes away or goes back, and in whatever order.

More of it by hand: `make simulation`.
"""

from typing import Any

import pytest

from tests.simulation.jobs.walks import MODES, walk
from tests.thorough import some

pytestmark = pytest.mark.untraced  # what runs here is covered without it, and is slower when it is traced

STEPS = 75
SEEDS = 2 * len(MODES)


@pytest.mark.parametrize("seed", some(range(SEEDS), *range(len(MODES))))
def test_walks_of_jobs(empty_redis: Any, seed: int) -> None:
    assert walk(empty_redis, seed, STEPS)["work"]
