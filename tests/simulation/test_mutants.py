"""The tests notice scripts that are broken by rule: some of them here, all of them by `make simulation`."""

import pytest

from tests.simulation.mutants import EQUIVALENT, RULES, judged, mutants, sample

pytestmark = pytest.mark.untraced

NUMBER, SEED, JOBS = 6, 1, 1


def test_a_broken_script_is_noticed() -> None:
    assert [mutant.name for mutant, killer in judged(sample(NUMBER, SEED), JOBS) if killer is None] == []


def test_each_rule_has_places() -> None:
    assert {mutant.rule for mutant in mutants()} == set(RULES)


def test_what_is_said_to_be_equivalent_is_there() -> None:
    assert set(EQUIVALENT) <= {mutant.name for mutant in mutants()}
