"""Results that travel with the news of an end say what the ledger says."""

import dataclasses

import pytest
import redis

from tasks.item import Options
from tasks.ledger.read import results_in
from tasks.ledger.redis_keys import ENDED_CHANNEL, answers_channel
from tasks.ledger.task import State
from tests.integration.ledger.driver import Driver, failed, succeeded
from tests.integration.ledger.listener import Listener

ME = "me"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("deadline_in_ms", [None, 1000])
def test_an_answer_says_what_the_ledger_says(
    driver: Driver, redis_client: redis.Redis, deadline_in_ms: int | None
) -> None:
    one = driver.submit((2, 10), (1, 5), answer_to=ME, owner="a b", trace=TRACE, deadline_in_ms=deadline_in_ms).task_id
    two = driver.submit(answer_to=ME, options=Options(prompt_name="query")).task_id
    bad = driver.submit(answer_to=ME).task_id
    driver.advance(7)
    claims = [driver.claim() for _ in range(2)]  # the second piece of a task is behind the others
    pieces = {(piece.task_id, piece.piece_id): piece for claim in claims for piece in claim.pieces}
    driver.advance(7)
    with Listener(redis_client, answers_channel(ME)) as mine, Listener(redis_client, ENDED_CHANNEL) as others:
        cut = dataclasses.replace(succeeded(pieces[two, "0"]), truncated=[0])
        outcomes = [succeeded(pieces[one, "0"]), cut, failed(pieces[bad, "0"]), failed(pieces[one, "1"])]
        driver.commit(claims[0], outcomes)
        answers = [told for message in mine.messages() for told in results_in(message)]
        assert [ended for message in others.messages() for ended in message.decode().split()] == []
    assert {told.task.id for told in answers} == {one, two, bad}
    for told in answers:
        read = driver.result(told.task.id)
        assert told.task == dataclasses.replace(read.task, metadata=None)
        assert told.vectors.tobytes() == read.vectors.tobytes()
        assert (told.vectors.shape, told.errors, told.truncated) == (read.vectors.shape, read.errors, read.truncated)
    assert {told.task.state for told in answers} == {State.COMPLETED, State.FAILED}


@pytest.mark.parametrize("end", ["cancel", "forget", "expire", "commit"])
def test_every_end_is_announced(driver: Driver, redis_client: redis.Redis, end: str) -> None:
    task_id = driver.submit(deadline_in_ms=1000).task_id
    with Listener(redis_client, ENDED_CHANNEL) as listener:
        if end == "expire":
            driver.advance(1000)
            driver.watch()
        elif end == "commit":
            driver.work_off()
        else:
            getattr(driver, end)(task_id)
        assert [ended for message in listener.messages() for ended in message.decode().split()] == [task_id]
