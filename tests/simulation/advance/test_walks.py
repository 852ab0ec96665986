"""The driver of jobs by itself: whatever its stages come to, in any order, a job ends and leaves nothing."""

import pytest

from tests.simulation.advance import walks
from tests.simulation.advance.mutants import RULES, killer, mutants
from tests.simulation.advance.world import KINDS, TROUBLES
from tests.simulation.breaking import sample


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_comes_to_its_end_whatever_its_stages_come_to(kind: str) -> None:
    for seed in range(len(TROUBLES)):
        walks.walk_with_faults(kind, seed)
        walks.walk_again(kind, seed)
    for seed in range(3):
        walks.walk_well(kind, seed)


@pytest.mark.untraced
def test_a_broken_driver_is_noticed() -> None:
    """Some of them here; all of them: `python -m tests.simulation driver`."""
    made = mutants()
    assert {mutant.rule for mutant in made} == set(RULES), "each rule has places"
    assert [mutant.name for mutant in sample(made, 5) if not killer(mutant)] == []
