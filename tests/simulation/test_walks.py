"""The rules of the ledger hold whatever clients and workers do, in whatever order; and the tests notice broken ones.

Batches and ingestions come to what was asked for, whatever dies, goes away or goes back.

More of it by hand: `make simulation`.
"""

import random
from typing import Any

import pytest

from tests.simulation.jobs import walks as jobs
from tests.simulation.mutants import RULES, judged, mutants
from tests.simulation.walks import walk
from tests.thorough import some

pytestmark = pytest.mark.untraced  # what runs here is covered without it, and is slower when it is traced


@pytest.mark.parametrize("seed", range(6))
def test_weighted_walks(empty_redis: Any, seed: int) -> None:
    assert walk(empty_redis, seed, 150)["work"] > 20


def test_a_broken_script_is_noticed() -> None:
    made = mutants()
    assert {mutant.rule for mutant in made} == set(RULES), "each rule has places"
    chosen = random.Random(1).sample(made, 4)  # noqa: S311 - the same ones each time
    assert [mutant.name for mutant, killer in judged(chosen, 1) if killer is None] == []


@pytest.mark.parametrize("seed", some(range(2 * len(jobs.MODES)), *range(len(jobs.MODES))))
def test_walks_of_jobs(empty_redis: Any, seed: int) -> None:
    assert jobs.walk(empty_redis, seed, 75)["work"]
