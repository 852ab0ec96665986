"""One move of a job: all of it or nothing, after the move that was read alone. Its account is exact at every moment."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.errors import TooMany
from tasks.ledger.overview import read_account
from tasks.ledger.read import read_task
from tasks.records import store
from tasks.records.api_keys import Key, Mark, make_mark
from tasks.records.files import Purpose, delete_file, list_files, read_file
from tasks.records.jobs import Counts, DonePage, JobRecord, JobStatus, Page, Stage
from tasks.records.moves import Move, cancel_job, delete_job, retry_job
from tasks.records.stage_tasks import embed_task, stage_task
from tasks.records.store import Room, left_of
from tests.integration.ledger.driver import MODEL, Driver, everything, new_pieces
from tests.integration.ledger.listener import Listener
from tests.integration.records.jobs import KINDS, Sweeper, change, create, job, make, new_batch, new_ingestion
from tests.made_files import made_file
from tests.thorough import some

New = Callable[..., JobRecord]
RECORD_BYTES, PAGE_BYTES = 1024, 96
both_kinds = pytest.mark.parametrize("new", KINDS, ids=["batch", "ingestion"])


def parses(move: Move, number: int = 1) -> None:
    """A page whose task waits in the queue."""
    move.set(status=JobStatus.IN_PROGRESS, model=MODEL, next_page=number + 1)
    move.pages[number] = Page(under_way=True, src="o/j/1.list", documents=3)
    move.new_tasks.append(stage_task(move.record, number, Stage.PARSE))


def embeds(move: Move, number: int = 1) -> None:
    """What is parsed waits for the model."""
    move.forget.append(move.record.task_id(number, Stage.PARSE))
    move.put(number, at=Stage.EMBED, chunks=30)
    move.new_tasks.append(embed_task(move.record, number, new_pieces((10, 100), (20, 200)), None))


def begun(driver: Driver, new: New = new_ingestion, **changed: Any) -> str:
    """One whose first page is to be parsed; its id."""
    made = create(driver, new(**changed))
    assert change(driver, made, parses)
    return made


@both_kinds
def test_a_move_that_is_made_again_because_the_reply_was_lost_is_made_once(
    driver: Driver, redis_client: redis.Redis, new: New
) -> None:
    made = begun(driver, new)
    move = Move(job(driver, made))
    embeds(move)
    move.counters["setbacks_sink"] += 1
    move.files.append(made_file(5))
    operation = move.operation()
    assert driver.run(operation) is not None
    before = everything(redis_client)
    with Listener(redis_client, "eq:jobs") as woken:
        assert driver.run(operation) is not None, "it is made"
        assert woken.messages() == [b"job"], "whoever would have been woken is"
    assert everything(redis_client) == before
    assert change(driver, made, lambda after: after.put(1, losses=1))
    before = everything(redis_client)
    assert driver.run(operation) is None
    assert everything(redis_client) == before


@both_kinds
def test_nobody_who_is_purged_gets_a_task_or_a_file(driver: Driver, new: New) -> None:
    made = create(driver, new("ann"))
    driver.run(make_mark(Mark(name="ann", owner="ann", purged=2.0)))
    move, file = Move(job(driver, made)), made_file(1, owner="ann")
    parses(move)
    move.files.append(file)
    assert make(driver, move), "the record moves: it must come to its end"
    assert job(driver, made).pages[1].under_way
    assert driver.run(read_task(move.record.task_id(1, Stage.PARSE))) is None
    assert driver.run(read_file(file.id)) is None
    assert driver.run(left_of("ann")).files == 0


def test_what_was_accepted_of_a_revoked_key_goes_on_to_its_end(driver: Driver) -> None:
    made = create(driver, new_batch("ann"))
    key = Key(name="ann", owner="ann", digests=(), scopes=frozenset(), created=1.0, revoked=2.0)
    driver.run(store.create(key))
    assert driver.run(read_account("ann")).numbers["revoked"] == 1
    move, file = Move(job(driver, made)), made_file(1, owner="ann")
    parses(move)
    move.files.append(file)
    assert make(driver, move)
    assert driver.run(read_task(move.record.task_id(1, Stage.PARSE)))
    assert driver.run(read_file(file.id)) == file


def test_files_come_with_the_move_and_count_for_their_owner(driver: Driver) -> None:
    made = create(driver, new_batch("ann"))
    change(driver, made, parses)

    def file(name: str, **changed: Any) -> Any:
        return made_file(600, owner="ann", purpose=Purpose.BATCH_OUTPUT, stored=f"ann/{made}/{name}", **changed)

    output, error = file("output.jsonl"), file("error.jsonl", expires_ms=None)

    def ends(move: Move) -> None:
        move.files += [output, error]
        move.set(files={"output": output.id, "error": error.id})
        move.forget.append(move.record.task_id(1, Stage.PARSE))
        move.close(1, DonePage("", Counts(documents=1, loaded=1)))
        move.end(JobStatus.COMPLETED)

    assert change(driver, made, ends)
    assert [driver.run(read_file(one.id)) for one in (output, error)] == [output, error]
    assert {one.id for one in driver.run(list_files("ann")).records} == {output.id, error.id}
    left = driver.run(left_of("ann"))
    assert (left.jobs, left.files, left.stored_bytes) == (0, 2, 1200), "whatever the quota"
    assert driver.client.zscore("eq:ends", f"file:{output.id}") == driver.now_ms + output.life_ms
    assert driver.client.zscore("eq:ends", f"file:{error.id}") is None
    for one in (output, error):
        driver.run(delete_file(one.id))
    assert driver.run(left_of("ann")).stored_bytes == 0


def weight_of(driver: Driver, job_id: str) -> int:
    """What a job should count for: its record, open pages and done ones, as they are in Redis."""
    kind = job(driver, job_id).record.KIND
    fields: Any = driver.client.hgetall(f"eq:{kind}:{job_id}")
    done: Any = driver.client.hgetall(f"eq:{kind}-done:{job_id}")
    pages = [text for name, text in fields.items() if name[:1] == b"o" and name != b"order"] + list(done.values())
    return RECORD_BYTES + len(fields[b"s"]) + sum(PAGE_BYTES + len(text) for text in pages)


@both_kinds
@pytest.mark.parametrize("seed", some(range(8), 0, 1))
def test_the_account_is_exact_after_any_moves_and_nothing_at_the_end(
    driver: Driver, redis_client: redis.Redis, tmp_path: Path, new: New, seed: int
) -> None:
    rng, sweeper = random.Random(seed), Sweeper(driver, tmp_path)  # noqa: S311
    jobs = [create(driver, new("ann", alias=f"{n}")) for n in range(3)]

    def step(move: Move) -> None:
        numbers = [1] if move.record.is_batch else range(1, 6)
        for number in rng.sample(numbers, rng.randint(1, len(numbers))):
            page = move.pages.get(number)
            if page is None:
                was = move.job.done.get(number)
                move.pages[number] = Page(src="s" * rng.randrange(99), documents=3, was=was)
            elif page.under_way:
                ends = rng.choice([move.forget, move.cancel])
                ends.append(move.record.task_id(number, Stage.PARSE))
                if rng.random() < 0.5:
                    move.put(number, under_way=False)
                else:
                    move.close(number, DonePage("d" * rng.randrange(99), Counts(*range(12))))
            elif rng.random() < 0.7:
                move.put(number, under_way=True, losses=rng.randrange(99))
                move.new_tasks.append(stage_task(move.record, number, Stage.PARSE))
            else:
                del move.pages[number]
        move.set(warning="w" * rng.randrange(300), losses=rng.randrange(10**6))

    for _ in range(40):
        assert change(driver, rng.choice(jobs), step)
        weights = {job_id: weight_of(driver, job_id) for job_id in jobs}
        assert {one: int(driver.client.hget(f"eq:{job(driver, one).record.KIND}:{one}", "weight") or 0)
                for one in jobs} == weights  # fmt: skip
    for job_id in jobs:

        def ends(move: Move) -> None:
            move.forget += [move.record.task_id(number, Stage.PARSE) for number in range(1, 6)]
            move.pages.clear()
            move.end(rng.choice([JobStatus.COMPLETED, JobStatus.CANCELLED]))

        assert change(driver, job_id, ends)
    left = driver.run(left_of("ann"))
    assert (left.jobs, left.memory_bytes) == (0, sum(weight_of(driver, job_id) for job_id in jobs))
    for job_id in jobs:
        assert make(driver, delete_job(job(driver, job_id)))
    sweeper.to_the_end()
    assert not driver.run(left_of("ann"))
    assert redis_client.keys("eq:owner:ann") == []
    assert not [name for name in redis_client.keys("eq:*") if any(one.encode() in name for one in jobs)]


@both_kinds
def test_callers_wake_the_driver_and_it_does_not_wake_itself(
    driver: Driver, redis_client: redis.Redis, new: New
) -> None:
    made = begun(driver, new)
    with Listener(redis_client, "eq:jobs") as woken:
        move = Move(job(driver, made))
        move.put(1, losses=1)
        assert driver.run(move.operation(wakes=False)) is not None
        assert woken.messages() == []
        assert make(driver, cancel_job(job(driver, made)))
        assert woken.messages() == [b"job"]


def test_there_is_room_for_what_is_tried_again_or_it_is_refused(driver: Driver, redis_client: redis.Redis) -> None:
    made = begun(driver)
    assert change(driver, made, lambda move: move.close(1, DonePage("d", Counts(documents=3, failed=3))))
    assert change(driver, made, lambda move: move.end(JobStatus.COMPLETED))
    create(driver, new_ingestion())
    move = retry_job(job(driver, made))
    assert move is not None
    before = everything(redis_client)
    for room in (Room({"jobs": 1}), Room({"ingestions": 1})):
        with pytest.raises(TooMany):
            driver.run(move.operation(room))
        assert everything(redis_client) == before
    operation = move.operation(Room({"jobs": 2, "ingestions": 2}))
    assert driver.run(operation) is not None
    assert driver.run(operation) is not None, "it is made, whatever there is room for now"
