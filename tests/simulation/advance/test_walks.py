"""The driver of jobs by itself: whatever its stages come to, in any order, a job ends and leaves nothing."""

import pytest

from tests.simulation.advance import walks
from tests.simulation.advance.world import KINDS, TROUBLES


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_comes_to_its_end_whatever_its_stages_come_to(kind: str) -> None:
    for seed in range(2 * len(TROUBLES)):
        walks.walk_with_faults(kind, seed)
    for seed in range(len(TROUBLES)):
        walks.walk_again(kind, seed)
    for seed in range(3):
        walks.walk_well(kind, seed)
