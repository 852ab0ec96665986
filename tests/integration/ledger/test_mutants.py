"""The simulation notices scripts that are broken on purpose. All of them, by hand: `python -m tests.mutants`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.mutants import broken_copy, broken_text, noticed_by_simulation
from tests.mutations import MUTATIONS, Mutation

SEEDS = 8


@pytest.fixture
def emptied(redis_client: redis.Redis) -> Iterator[redis.Redis]:
    """Broken scripts leave broken keys."""
    yield redis_client
    redis_client.flushall()


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.quick], ids=lambda mutation: mutation.name)
def test_a_broken_script_is_noticed(emptied: redis.Redis, tmp_path: Path, mutation: Mutation) -> None:
    assert noticed_by_simulation(emptied, broken_copy(mutation, tmp_path), SEEDS) is not None


def test_every_mutation_still_applies() -> None:
    for mutation in MUTATIONS:
        assert mutation.new in broken_text(mutation), mutation.name
