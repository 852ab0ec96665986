"""What the product's calls do beyond their scripts: pages of lists, batches of calls, `embedq debug`."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import RedisUnavailable
from tasks.ledger.client import AsyncLedger
from tasks.ledger.debug import main
from tasks.ledger.heartbeat import join
from tasks.ledger.overview import overview
from tasks.ledger.read import list_tasks
from tasks.ledger.submit import submit
from tasks.ledger.task import State
from tests.integration.ledger.driver import MODEL, Driver, failed
from tests.ledger_builders import a_model, a_worker

CALLS = 200


def pages(driver: Driver, limit: int, states: tuple[State, ...]) -> list[str]:
    found: list[str] = []
    after, more = "", True
    while more:
        tasks, until, more = driver.run(list_tasks("anonymous", limit=limit, after=after, states=states))
        found += [task.id for task in tasks]
        assert until != after or not more, "the list does not move on"
        after = until
    return found


STEPS = st.lists(
    st.tuples(st.sampled_from(["submit", "submit", "cancel", "forget", "work"]), st.integers(0, 30)), max_size=30
)


@settings(deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(1, 5), st.sets(st.sampled_from(State)))
def test_whatever_happens_pages_hold_what_is_there(
    redis_client: redis.Redis, steps: list[tuple[str, int]], limit: int, states: set[State]
) -> None:
    redis_client.flushall()
    driver = Driver(redis_client)
    known: dict[str, None] = {}
    for what, number in steps:
        if what == "submit":
            known[driver.submit(listed=True).task_id] = None
        elif what == "work":
            driver.commit(driver.claim(max_pieces=1 + number % 3))
        elif known:
            task_id = list(known)[number % len(known)]
            getattr(driver, what)(task_id)
            if what == "forget":
                del known[task_id]
    tasks = [driver.task(task_id) for task_id in reversed(known)]
    assert pages(driver, limit, tuple(states)) == [task.id for task in tasks if not states or task.state in states]


@pytest.fixture
async def ledger(redis_url: str) -> AsyncIterator[AsyncLedger]:
    ledger = AsyncLedger.connect(redis_url)
    await ledger.run(overview())
    yield ledger
    await ledger.close()


async def test_concurrent_calls_share_commands_also_when_redis_forgot_the_script(
    ledger: AsyncLedger, driver: Driver, redis_client: redis.Redis
) -> None:
    redis_client.script_flush()
    await ledger.run(submit(driver.new_task()))
    redis_client.config_resetstat()
    replies = await asyncio.gather(*(ledger.run(submit(driver.new_task())) for _ in range(CALLS)))
    assert len({reply.task_id for reply in replies}) == CALLS
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] < CALLS / 10


async def test_what_redis_does_not_answer_in_time_ends_and_takes_no_later_call_along(
    ledger: AsyncLedger, driver: Driver, redis_client: redis.Redis
) -> None:
    redis_client.client_pause(400)
    late = (ledger.run(submit(driver.new_task()), timeout_s=0.1) for _ in range(3))
    assert {type(error) for error in await asyncio.gather(*late, return_exceptions=True)} == {RedisUnavailable}
    redis_client.ping()  # answered when the pause is over
    assert not (await ledger.run(submit(driver.new_task()))).joined


def test_debug_shows_tasks_and_queues_without_texts(
    driver: Driver, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*arguments: str) -> Any:
        assert main(arguments) == 0
        return json.loads(capsys.readouterr().out)

    monkeypatch.setenv("EMBEDQ_REDIS_URL", redis_url)
    driver.run(join(MODEL, a_worker("w", 100), a_model(), 5000))
    one = driver.submit((2, 20), (1, 5), (1, 5), metadata=b'{"name":"secret"}').task_id
    held, other, done = (driver.claim(max_pieces=1, stamp=a_model().stamp) for _ in range(3))
    driver.commit(done, [failed(done.pieces[0])])
    told = shown("task", one)
    assert (told["record"]["state"], told["record"]["total"], told["record"]["failed"]) == ("in_progress", 4, 1)
    assert set(told["pieces"]) == {"0", "1"}
    assert told["payload_bytes"] == {"0": len(b'["t0","t1"]'), "1": len(b'["t2"]')}
    assert [error[1] for errors in told["errors"].values() for error in errors["errors"]] == ["boom"]
    assert told["metadata_bytes"] == {"": 17}
    two = driver.submit().task_id
    told = shown("queue", MODEL)
    assert (told["state"]["rate"], set(told["workers"]), set(told["online"])) == (100, {"w"}, {two})
    assert (told["claims"], set(told["leases"])) == (
        {held.token: f"{one} 0", other.token: f"{one} 1"},
        {held.token, other.token},
    )
    for claim in (held, other):
        driver.commit(claim)
    assert main(["task", "none"]) == 1
    assert "no task none" in capsys.readouterr().err
