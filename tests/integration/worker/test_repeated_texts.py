"""What a worker does with texts that it has seen before: the same again, whoever asks."""

import numpy as np
import pytest

from tasks.item import Options
from tasks.ledger.task import Lane, State
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until

TEXT = "a query that is asked again and again"
WAYS = (
    Options(),
    Options(prompt_name="query"),
    Options(prompt_name="document"),
    Options(dimensions=5),
    Options(normalize=False),
    Options(prompt_name="query", dimensions=7, normalize=False, truncate=False),
)


def passes(client: LedgerClient, at_least: int) -> int:
    """How many there were, once a heartbeat has told of so many."""
    wait_until(lambda: client.counter("forward_passes") >= at_least, message=f"{at_least} passes")
    return client.counter("forward_passes")


@pytest.fixture(autouse=True)
def _worker(roles: Roles) -> None:
    roles.worker(fake_max_tokens=12)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_text_that_is_asked_again_gets_the_same_vector(client: LedgerClient, options: Options) -> None:
    texts = [TEXT, "another", "one that is longer than the twelve tokens which this model reads at most"]
    first, again = (client.result(client.ended(client.submit(texts, options=options)).id) for _ in range(2))
    np.testing.assert_array_equal(first.vectors, again.vectors)
    assert (first.errors, first.truncated) == (again.errors, again.truncated)
    assert first.task.prompt_tokens == again.task.prompt_tokens
    assert (2 in first.truncated) is options.truncate
    assert (2 in first.errors) is not options.truncate


def test_a_text_costs_what_it_costs_whatever_others_have_asked_for(client: LedgerClient) -> None:
    # A caller who measures latency must not learn what others embed; passes are what takes the time.
    asked = [(lane, owner) for lane in Lane for owner in ("ann", "bob") for _ in range(2)]
    for lane, owner in asked:
        client.completed(client.submit([TEXT], owner=owner, lane=lane))
    assert passes(client, len(asked)) == len(asked)


def test_a_text_that_failed_is_tried_again(client: LedgerClient) -> None:
    for _ in range(2):
        assert client.ended(client.submit(["!!fail!!"])).state is State.FAILED
    assert passes(client, 2) == 2
