"""The driver of jobs by itself: whatever its stages come to, in any order, a job ends and leaves nothing."""

import pytest

from tests.simulation.advance import walks
from tests.simulation.advance.mutants import RULES, killer, mutants, sample
from tests.simulation.advance.world import KINDS

EVERY = 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_all_that_is_listed_is_done_where_nothing_fails(kind: str, seed: int) -> None:
    walks.walk_well(kind, seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_a_job_comes_to_its_end_whatever_its_stages_come_to(kind: str, seed: int) -> None:
    walks.walk_with_faults(kind, seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_a_retry_does_what_has_failed_and_nothing_else(kind: str, seed: int) -> None:
    walks.walk_again(kind, seed)


@pytest.mark.untraced
@pytest.mark.parametrize("part", range(2))
def test_a_broken_driver_is_noticed(part: int) -> None:
    """Some of them here; all of them: `python -m tests.simulation.advance`."""
    assert [mutant.name for mutant in sample(EVERY)[part::2] if not killer(mutant)] == []


def test_each_rule_has_places() -> None:
    assert {mutant.rule for mutant in mutants()} == set(RULES)
