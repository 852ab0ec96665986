"""From a body to a task for the ledger."""

from dataclasses import replace
from typing import Any

import pytest

from api.idempotency import alias_of_key
from api.submit import NewTasks, task_of
from tasks.errors import NotReady
from tasks.ledger.overview import Account
from tasks.ledger.task import Alias, Lane
from tests.unit.api.embedding_requests import MODEL, new_tasks, overview, served, synchronous, task


def test_a_piece_is_a_quarter_second_of_one_worker() -> None:
    texts = ["x" * 400] * 20  # 100 tokens each

    two_workers = task(new_tasks(overview(workers=2, rate=4000)), input=texts)  # 2,000 tokens/s each
    one_worker = task(new_tasks(overview(workers=1, rate=4000)), input=texts)
    fast = task(new_tasks(overview(workers=1, rate=1e9)), input=texts)

    assert [piece.items for piece in two_workers.pieces] == [5] * 4
    assert [piece.items for piece in one_worker.pieces] == [10] * 2
    assert [piece.items for piece in fast.pieces] == [20]


def test_a_synchronous_task_lives_a_little_longer_than_its_waiter() -> None:
    stored = synchronous(new_tasks(), input="a")

    assert stored.deadline_in_ms == 30_000
    assert stored.ttl_ms == 60_000
    assert stored.alias is not None
    assert stored.alias.join


def test_equal_work_has_one_alias_whatever_the_form() -> None:
    made_by = new_tasks(overview())
    alias = synchronous(made_by, input="a").alias

    assert synchronous(made_by, input=["a"], model=MODEL, encoding_format="base64", user="u").alias == alias
    for other in (
        {"input": "b"},
        {"input": ["a", "a"]},
        {"input": "a", "dimensions": 2},
        {"input": "a", "normalize": False},
    ):
        assert synchronous(made_by, **other).alias != alias


def keyed(key: str, body: bytes) -> Alias:
    alias = alias_of_key(key, body)
    assert alias is not None
    return alias


def test_an_idempotency_key_names_the_key_and_the_bytes_of_the_body() -> None:
    first = keyed("key", b'{"input": "a", "lane": "bulk"}')
    again = keyed("key", b'{"input": "a", "lane": "bulk"}')
    changed = keyed("key", b'{"input": "b", "lane": "bulk"}')
    rewritten = keyed("key", b'{"lane": "bulk", "input": "a"}')
    other_key = keyed("yek", b'{"input": "a", "lane": "bulk"}')

    assert not first.join
    assert first == again
    assert (changed.name == first.name, changed.digest == first.digest) == (True, False)
    assert (rewritten.name == first.name, rewritten.digest == first.digest) == (True, False)
    assert (other_key.name == first.name, other_key.digest == first.digest) == (False, True)


def openai_prompt(made_by: NewTasks, **fields: Any) -> str | None:
    return synchronous(made_by, **({"input": "a"} | fields)).options.prompt_name


def test_input_type_chooses_a_prompt_where_the_model_has_one() -> None:
    known = new_tasks(overview())

    assert openai_prompt(known) is None
    assert openai_prompt(known, input_type="search_query") == "query"
    assert openai_prompt(known, input_type="document") is None  # this model has no prompt for documents
    assert openai_prompt(known, input_type="document", prompt_name="query") == "query"
    assert (
        synchronous(known, input="a", input_type="query").alias
        == synchronous(known, input="a", prompt_name="query").alias
    )


def test_input_type_waits_for_a_worker_that_knows_the_prompts() -> None:
    with pytest.raises(NotReady):
        openai_prompt(new_tasks(), input_type="query")
    assert openai_prompt(new_tasks(), input_type="query", prompt_name="query") == "query"


def test_retry_after_is_the_work_that_is_done_before_the_task_has_ended() -> None:
    registry = served(overview(rate=100, online=1234))
    stored = task_of(task(new_tasks(overview(rate=100, online=1234)), input="a"))

    def told(cost: int, lane: Lane = Lane.ONLINE, *, mine: int | None = None, tasks: int = 1) -> int:
        numbers = {f"cost:{MODEL}:{lane}": mine or 0, f"open:{MODEL}:{lane}": tasks}
        account = None if mine is None else Account(numbers)
        return registry.retry_after_s(replace(stored, cost=cost, lane=lane), account)

    assert told(1234) == told(1234, mine=1234) == 13
    assert told(10, mine=1234, tasks=2) == 1  # the large task of the same owner goes first by as much as it costs
    assert told(1000, Lane.BULK) == 23  # online work goes beside it, and has the larger part
    registry.update({MODEL: overview(rate=1, online=100_000)})
    assert told(100_000) == 120
    registry.update({MODEL: overview(rate=100, online=101_500, owners=3)})
    assert told(100, mine=1000, tasks=10) == 30  # 1,000 of each, or less: they take turns
    assert told(100) == 3  # it is all that its owner has
