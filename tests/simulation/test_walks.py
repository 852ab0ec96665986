"""The rules of the ledger hold whatever clients and workers do, and in whatever order.

More of it by hand: `make simulation`.
"""

from collections import Counter
from typing import Any

import pytest

from tests.simulation.walks import walk

pytestmark = pytest.mark.untraced  # what runs here is covered without it, and is slower when it is traced

STEPS = 150
WALKS = 6


@pytest.mark.parametrize("seed", range(WALKS))
def test_weighted_walks(empty_redis: Any, seed: int) -> None:
    stats = Counter[str]()
    walk(empty_redis, seed, STEPS, stats=stats)
    assert stats["claims"] > 20
