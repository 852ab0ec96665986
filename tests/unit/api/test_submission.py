"""From a body to a task for the ledger, and what is told of queues: times, room, who is absent."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from api.load_limits import rate_limit_headers
from api.schemas.embeddings import TaskBody
from api.served_models import ServedModels
from api.submit import NewTasks, task_of
from api.waiting.wait_for_vectors import wanted_for
from tasks.errors import NotReady
from tasks.ledger.overview import Account, Queue
from tasks.ledger.task import Lane, NewTask
from tasks.records.api_keys import ALL_SCOPES, Key
from tasks.wire.embeddings_body import EmbeddingsBody
from tests.ledger_builders import a_model, a_worker
from worker_config.settings import load_settings

MODEL = "test/model"
ENTRY = a_model(id=MODEL, prompts=("query",), document_prompt=None)
ME = Key(name="me", owner="me", digests=(), scopes=ALL_SCOPES, created=0)


def overview(*, workers: int = 2, rate: float | None = 4000, online: int = 0, owners: int = 1) -> Queue:
    """`online`: what waits in the online lane, of so many `owners`."""
    costs, of = {Lane.ONLINE: online, Lane.BULK: 0}, {Lane.ONLINE: owners if online else 0, Lane.BULK: 0}
    return Queue(MODEL, ENTRY, (a_worker(),) * workers, rate=rate, backlog_cost=costs, owners=of)


def served(seen: Queue | None = None, **settings: Any) -> ServedModels:
    """What is served, once a worker has been `seen`; None: none has been."""
    models = ServedModels(load_settings(served_name=MODEL, **settings))
    if seen is not None:
        models.update({MODEL: seen})
    return models


def submitted(seen: Queue | None, **fields: Any) -> NewTask:
    """Of a body of `POST /v1/tasks`."""
    made_by = NewTasks(load_settings(served_name=MODEL), served(seen))
    return made_by.listed(ME, made_by.read(TaskBody, orjson.dumps(fields)), None)


def awaited(seen: Queue | None, **fields: Any) -> NewTask:
    """Of a body of `POST /v1/embeddings`."""
    made_by = NewTasks(load_settings(served_name=MODEL), served(seen))
    return made_by.awaited(ME, made_by.read(EmbeddingsBody, orjson.dumps({"input": "a"} | fields)), wanted_for(20))


@pytest.mark.parametrize(("workers", "rate", "pieces"), [(2, 4000, [5] * 4), (1, 4000, [10] * 2), (1, 1e9, [20])])
def test_a_piece_is_a_quarter_second_of_one_worker(workers: int, rate: float, pieces: list[int]) -> None:
    task = submitted(overview(workers=workers, rate=rate), input=["x" * 400] * 20)  # 100 tokens each
    assert [piece.items for piece in task.pieces] == pieces


def test_equal_work_of_waiting_callers_has_one_alias_whatever_the_form() -> None:
    first = awaited(overview())
    alias = first.alias
    assert (first.deadline_in_ms, first.ttl_ms, alias and alias.join) == (30_000, 60_000, True)
    for same in ({"input": ["a"], "model": MODEL, "encoding_format": "base64", "user": "u"}, {"input": [64]}):
        assert awaited(overview(), **same).alias == alias
    for other in ({"input": "b"}, {"input": ["a", "a"]}, {"dimensions": 2}, {"normalize": False}):
        assert awaited(overview(), **other).alias != alias


def test_input_type_waits_for_a_worker_that_knows_the_prompts() -> None:
    asked: list[dict[str, Any]] = [{}, {"input_type": "search_query"}, {"input_type": "document"}]
    assert [awaited(overview(), **one).options.prompt_name for one in asked] == [None, "query", None]
    with pytest.raises(NotReady):
        awaited(None, input_type="query")
    assert awaited(None, input_type="query", prompt_name="query").options.prompt_name == "query"


QUEUED = overview(rate=100, online=1234)


@pytest.mark.parametrize(
    ("seen", "cost", "lane", "mine", "seconds"),
    [
        (QUEUED, 1234, Lane.ONLINE, (0, 0), 13),
        (QUEUED, 1234, Lane.ONLINE, (1234, 1), 13),
        (QUEUED, 10, Lane.ONLINE, (1234, 2), 1),  # the large one of its owner goes first by as much as it costs
        (QUEUED, 1000, Lane.BULK, (0, 0), 23),  # online work goes beside it, and has the larger part
        (overview(rate=1, online=100_000), 100_000, Lane.ONLINE, (0, 0), 120),
        (overview(rate=100, online=101_500, owners=3), 100, Lane.ONLINE, (1000, 10), 30),  # they take turns
        (overview(rate=100, online=101_500, owners=3), 100, Lane.ONLINE, (0, 0), 3),  # it is all that its owner has
    ],
)
def test_retry_after_is_the_work_that_is_done_before_the_task_has_ended(
    seen: Queue, cost: int, lane: Lane, mine: tuple[int, int], seconds: int
) -> None:
    one = replace(task_of(submitted(seen, input="a")), cost=cost, lane=lane)
    account = Account(dict(zip((f"cost:{MODEL}:{lane}", f"open:{MODEL}:{lane}"), mine, strict=True)))
    assert served(seen).retry_after_s(one, account if any(mine) else None) == seconds


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (QUEUED, ("3000", "1766", "13s")),
        (overview(rate=100, online=9500, owners=2), ("3000", "0", "1m35s")),  # admission may let in more
        (overview(rate=1, online=86_399), ("30", "0", "23h59m59s")),  # as Go reads it
        (None, ("120000", "120000", "0s")),
    ],
)
def test_clients_are_told_what_may_wait_and_what_is_left_of_it(seen: Queue | None, told: tuple[str, ...]) -> None:
    headers = rate_limit_headers(served(seen, max_backlog_s=30).room(MODEL), None, None)
    kinds = ("limit", "remaining", "reset")
    assert headers == {
        f"x-ratelimit-{kind}-{of}": value
        for kind, value in zip(kinds, told, strict=True)
        for of in ("requests", "tokens")
    }


def test_a_model_is_absent_from_when_its_last_worker_was_seen_to_be_gone() -> None:
    clock = SimpleNamespace(now_s=100.0)
    models = ServedModels(load_settings(served_name=MODEL), clock=lambda: clock.now_s)
    # A process that has just started knows of no time before; while Redis was away, no worker could say it is there.
    for now_s, workers, lost, absent_s in (
        *((100, 0, False, 0), (130, 0, False, 30), (150, 1, False, 0)),
        *((200, 0, False, 0), (290, 0, False, 90), (300, 0, True, 0)),
    ):
        clock.now_s = now_s
        if lost:
            models.lost("away")
        models.update({MODEL: overview(workers=workers)})
        assert models.absent_s(MODEL) == absent_s
