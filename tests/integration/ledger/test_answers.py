"""Results that travel with the news of an end: to whom, which, and that they say what the ledger says."""

import dataclasses

import pytest
import redis

from tasks.ledger import Alias, Lane, NewUnit, OutcomeKind, State
from tasks.ledger.answers import Answer, answers_in
from tasks.ledger.keys import ENDED_CHANNEL, answers_channel
from tasks.ledger.operations import Finished
from tests.integration.ledger.driver import Driver, failed, finished, unchanging
from tests.integration.ledger.listener import Listener

ME, OTHER = "me", "other"
SAME = Alias("a" * 32, "d" * 32, join=True)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Ears:
    """Two processes of the web tier and what both of them hear."""

    def __init__(self, client: redis.Redis) -> None:
        self._mine = Listener(client, answers_channel(ME))
        self._all = Listener(client, ENDED_CHANNEL)

    def answers(self) -> list[list[Answer]]:
        return [list(answers_in(message)) for message in self._mine.messages()]

    def told_all(self) -> list[bytes]:
        return self._all.messages()

    def close(self) -> None:
        self._mine.close()
        self._all.close()


@pytest.fixture
def ears(redis_client: redis.Redis) -> Ears:
    return Ears(redis_client)


def check_equal(driver: Driver, answer: Answer) -> None:
    """As the ledger has it."""
    told, read = answer.result(), driver.result(answer.task_id)
    assert unchanging(told.task) == unchanging(dataclasses.replace(read.task, metadata=None))
    assert told.task.expires_ms is not None
    assert told.vectors.tobytes() == read.vectors.tobytes()
    assert (told.vectors.shape, told.errors, told.truncated) == (read.vectors.shape, read.errors, read.truncated)


@pytest.mark.parametrize("deadline_in_ms", [None, 1000])
def test_an_answer_says_what_the_ledger_says(driver: Driver, ears: Ears, deadline_in_ms: int | None) -> None:
    one = driver.submit((2, 10), (1, 5), answer_to=ME, owner="a b", trace=TRACE, deadline_in_ms=deadline_in_ms).task_id
    two = driver.submit(answer_to=ME, options=driver.submission().options.from_text(b'{"prompt_name":"query"}')).task_id
    bad = driver.submit(answer_to=ME).task_id
    driver.advance(7)
    claim = driver.claim()
    units = {(unit.task_id, unit.unit_id): unit for unit in claim.units}
    driver.advance(7)
    cut = dataclasses.replace(finished(units[two, "0"]), truncated=[0])
    driver.commit(claim, [finished(units[one, "0"]), cut, failed(units[bad, "0"]), failed(units[one, "1"])])
    (answers,) = ears.answers()
    assert {answer.task_id for answer in answers} == {one, two, bad}
    for answer in answers:
        check_equal(driver, answer)
    assert {answer.result().task.state for answer in answers} == {State.COMPLETED, State.FAILED}
    assert ears.told_all() == []


def test_the_others_are_told_of_what_nobody_was_sent(driver: Driver, ears: Ears) -> None:
    """A process that is gone, or whose subscription is: whoever waits now may wait elsewhere."""
    mine, theirs, nobodys = (driver.submit(answer_to=name).task_id for name in (ME, OTHER, ""))
    driver.commit(driver.claim())
    (ended,) = ears.told_all()
    assert {*ended.split()} == {theirs.encode(), nobodys.encode()}
    ((answer,),) = ears.answers()
    assert answer.task_id == mine


def test_a_task_for_which_two_processes_wait_ends_for_all(driver: Driver, ears: Ears) -> None:
    task_id = driver.submit(answer_to=ME, alias=SAME, deadline_in_ms=1000).task_id
    assert driver.submit(answer_to=ME, alias=SAME, deadline_in_ms=1000).joined
    other = driver.submit(answer_to=ME, deadline_in_ms=1000).task_id
    assert driver.submit(answer_to=OTHER, alias=SAME, deadline_in_ms=1000).joined
    driver.commit(driver.claim())
    ((answer,),) = ears.answers()
    assert answer.task_id == other
    assert ears.told_all() == [task_id.encode()]


def test_what_is_large_is_read(driver: Driver, ears: Ears) -> None:
    """One result has at most 16 KiB, and a message 256."""
    sizes = [15_000] * 20 + [17_000]
    ids = [driver.submit(answer_to=ME).task_id for _ in sizes]
    claim = driver.claim()
    outcomes = [
        Finished(unit=unit, kind=OutcomeKind.VECTORS, outcome=bytes(size))
        for unit, size in zip(claim.units, sizes, strict=True)
    ]
    driver.commit(claim, outcomes)
    (answers,) = ears.answers()
    assert len(answers) == 17
    assert ids[-1] not in {answer.task_id for answer in answers}
    told = ears.told_all()[-1].decode().split()
    assert {*told} == {*ids} - {answer.task_id for answer in answers}


def test_what_was_committed_in_parts_is_read(driver: Driver, ears: Ears) -> None:
    task_id = driver.submit((1, 10), (1, 10), answer_to=ME).task_id
    claim = driver.claim()
    driver.commit(claim, [finished(claim.units[0])])
    driver.commit(claim, [finished(claim.units[1])])
    assert ears.answers() == []
    assert ears.told_all() == [task_id.encode()]


@pytest.mark.parametrize("end", ["cancel", "forget", "expire"])
def test_an_end_without_a_result_is_told_to_all(driver: Driver, ears: Ears, end: str) -> None:
    task_id = driver.submit(answer_to=ME, deadline_in_ms=1000).task_id
    claim = driver.claim()
    if end == "expire":
        driver.advance(1000)
        driver.watch()
    else:
        getattr(driver, end)(task_id)
    assert ears.told_all() == [task_id.encode()]
    driver.commit(claim)
    assert ears.answers() == []
    assert ears.told_all() == []


def test_a_repeated_commit_answers_once(driver: Driver, ears: Ears) -> None:
    driver.submit(answer_to=ME)
    claim = driver.claim()
    driver.commit(claim)
    driver.commit(claim)
    assert len(ears.answers()) == 1


def test_bulk_work_beside_it_is_told_as_before(driver: Driver, ears: Ears) -> None:
    task_id = driver.submit(units=[NewUnit(items=1, cost=10, payload=b'["a"]')], lane=Lane.BULK).task_id
    driver.commit(driver.claim())
    assert ears.told_all() == [task_id.encode()]
