"""The rules of the ledger hold whatever clients and workers do, and in whatever order.

More of it by hand: `make simulation`.
"""

from collections import Counter
from typing import Any

import pytest

from tests.simulation import machine
from tests.simulation.walks import walk

pytestmark = pytest.mark.untraced  # what runs here is covered without it, and is slower when it is traced

STEPS = 150
WALKS = 5
EXAMPLES = 12
STEPS_OF_EXAMPLE = 40


@pytest.mark.parametrize("seed", range(WALKS))
def test_weighted_walks(empty_redis: Any, seed: int) -> None:
    stats = Counter[str]()
    walk(empty_redis, seed, STEPS, stats=stats)
    assert stats["claims"] > 20


def test_rules_in_any_order(empty_redis: Any) -> None:
    assert machine.run(empty_redis, EXAMPLES, STEPS_OF_EXAMPLE)["claims"] > EXAMPLES
