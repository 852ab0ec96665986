"""Batches and ingestions in Redis: their moves, what they count for their owners, lists, and what the sweep removes."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.errors import StorageUnavailable
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records import store
from tasks.records.api_keys import Key, Mark, make_key, make_mark
from tasks.records.batches import BatchRecord
from tasks.records.files import put_file
from tasks.records.jobs import Counts, DonePage, JobRecord, JobStatus, Page, Stage, ended_jobs, list_jobs
from tasks.records.moves import Move, delete_job
from tasks.records.stage_tasks import embed_task, stage_task
from tasks.records.store import OPEN, Room, left_of, new_change
from tasks.storage.purged_owners import OwnerSweep
from tasks.storage.storage import Storage
from tests.integration.ledger.driver import MODEL, Driver, everything, new_pieces
from tests.integration.ledger.listener import Listener
from tests.integration.records.jobs import (
    DAY_MS,
    HOUR_MS,
    Sweeper,
    change,
    create,
    end,
    job,
    make,
    new_batch,
    new_ingestion,
    seen,
)
from tests.made_files import made_file
from tests.raises_code import raises_code
from tests.thorough import some

New = Callable[..., JobRecord]
RECORD_BYTES, PAGE_BYTES = 1024, 96
both_kinds = pytest.mark.parametrize("new", [new_batch, new_ingestion], ids=["batch", "ingestion"])


def parses(move: Move) -> None:
    """A page whose task waits in the queue."""
    move.set(status=JobStatus.IN_PROGRESS, model=MODEL, next_page=2)
    move.pages[1] = Page(under_way=True, src="o/j/1.list", documents=3)
    move.new_tasks.append(stage_task(move.record, 1, Stage.PARSE))


@both_kinds
def test_a_move_that_is_made_again_because_the_reply_was_lost_is_made_once(
    driver: Driver, redis_client: redis.Redis, new: New
) -> None:
    made = create(driver, new())
    assert change(driver, made, parses)
    move = Move(job(driver, made))
    move.forget.append(move.record.task_id(1, Stage.PARSE))
    move.put(1, at=Stage.EMBED, chunks=30)
    move.new_tasks.append(embed_task(move.record, 1, new_pieces((10, 100), (20, 200)), None))
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
                rng.choice([move.forget, move.cancel]).append(move.record.task_id(number, Stage.PARSE))
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

    def ends(move: Move) -> None:
        move.forget += [move.record.task_id(number, Stage.PARSE) for number in range(1, 6)]
        move.pages.clear()
        move.end(rng.choice([JobStatus.COMPLETED, JobStatus.CANCELLED]))

    for _ in range(40):
        assert change(driver, rng.choice(jobs), step)
        for one in jobs:
            told = driver.client.hget(f"eq:{job(driver, one).record.KIND}:{one}", "weight") or 0
            assert int(told) == weight_of(driver, one)
    assert all(change(driver, one, ends) for one in jobs)
    assert all(make(driver, delete_job(job(driver, one))) for one in jobs)
    sweeper.to_the_end()
    assert not driver.run(left_of("ann"))
    assert redis_client.keys("eq:owner:ann") == []
    assert not [name for name in redis_client.keys("eq:*") if any(one.encode() in name for one in jobs)]


def test_a_list_is_by_owner_and_paged(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    ids = [create(driver, new_batch()) for _ in range(7)]
    foreign = create(driver, new_batch("somebody"))

    def listed(owner: str, after: str | None, limit: int) -> tuple[list[str], bool]:
        return driver.run(list_jobs(BatchRecord, owner, after=after, limit=limit))

    assert listed("anonymous", None, 3) == (ids[:3:-1], True)
    assert listed("anonymous", ids[4], 4) == (ids[3::-1], False)
    assert listed("anonymous", ids[0], 4) == ([], False)
    assert listed("somebody", None, 3) == ([foreign], False)
    assert set(listed(OPEN, None, 100)[0]) == {foreign, *ids}
    end(driver, ids[2])
    assert listed("anonymous", ids[3], 4) == ([ids[2], ids[1], ids[0]], False), "it has ended, and is there"
    sweeper.passes(HOUR_MS / 1000)
    assert listed("anonymous", ids[3], 4) == ([ids[1], ids[0]], False), "it has expired"


def test_open_jobs_of_a_key_are_tasks_batches_and_ingestions(driver: Driver) -> None:
    three, alias = Room({"jobs": 3}), "a" * 32
    made = create(driver, new_batch(alias=alias), three)
    create(driver, new_ingestion(), three)
    task = driver.submit(listed=True).task_id
    for record in (new_batch(), new_ingestion()):
        with raises_code("key_limit", match="open_jobs is 3, and 3 have not ended") as refused:
            create(driver, record, three)
        assert refused.value.retry_after_s is not None
    assert create(driver, new_batch(alias=alias), three) == made, "a repetition is no new one"
    driver.cancel(task)
    create(driver, new_ingestion(), three)
    end(driver, made, JobStatus.CANCELLED)
    create(driver, new_batch(), three)


def test_rate_eta_and_metrics(driver: Driver) -> None:
    made, failed = create(driver, new_ingestion()), create(driver, new_batch())

    def lists(move: Move) -> None:
        move.set(status=JobStatus.IN_PROGRESS, revision="r", fingerprint="f")
        move.pages.update({n: Page(documents=n * 10, size_bytes=n * 100) for n in (1, 2, 7)})

    def done(n: int) -> DonePage:
        return DonePage("d", Counts(documents=n * 10, loaded=n * 10 - 5, failed=5, chunks=n * 20, bytes=n * 100))

    change(driver, made, lists)
    assert (job(driver, made).rate, job(driver, made).eta_s) == (None, None)
    change(driver, made, lambda move: move.close(1, done(1)), lambda move: move.pause("sink", Stage.LOAD))
    change(driver, made, lambda move: move.set(samples=(job(driver, made).sample,), listed=True))
    change(driver, made, lambda move: move.close(2, done(2)))
    driver.advance(10_000)
    rate = job(driver, made).rate
    assert (rate.documents_per_s, rate.chunks_per_s, rate.bytes_per_s, job(driver, made).eta_s) == (2, 4, 20, 35)
    change(driver, made, lambda move: move.pages.clear(), lambda move: move.end(JobStatus.COMPLETED))
    assert (job(driver, made).rate.documents_per_s, job(driver, made).eta_s) == (3, None)

    end(driver, failed, JobStatus.FAILED)
    documents = driver.run(overview(DOCUMENTS))[DOCUMENTS]
    assert (documents.redis.open_ingestions, documents.redis.open_batches) == (0, 0)
    ended = {"ingestions_completed": 1, "batches_failed": 1}
    assert documents.counters == ended | {"setbacks_sink": 1, "ingested_loaded": 20, "ingested_failed": 10}


def waiting(driver: Driver, job_id: str) -> bool:
    """Whether the sweep has not done with its end."""
    return job_id in [one for one, _ in driver.run(ended_jobs(type(job(driver, job_id).record)))]


def with_parts(sweeper: Sweeper, new: New) -> str:
    """One of ann's with a page that waits, a page that is done, and what their stages have left; its id."""
    made = create(sweeper.driver, new("ann", ttl_ms=DAY_MS))

    def begins(move: Move) -> None:
        move.set(status=JobStatus.IN_PROGRESS, next_page=3, times={"in_progress": 1})
        move.pages.update({n: Page(src=f"ann/{made}/{n}.list", documents=1) for n in (1, 2)})
        move.close(2, DonePage(f"ann/{made}/2.done", Counts(documents=1, failed=1)))

    change(sweeper.driver, made, begins)
    for name in ("1.list", "1.parsed", "2.list", "2.done"):
        sweeper.storage.write(f"ann/{made}/{name}", b"x")
    return made


@both_kinds
def test_an_end_is_due_after_a_minute_and_once_more_with_its_record(driver: Driver, tmp_path: Path, new: New) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made, other = with_parts(sweeper, new), with_parts(sweeper, new)
    there = sweeper.names(f"ann/{made}")
    for _ in range(3):
        sweeper.passes(100)
    assert sweeper.names(f"ann/{made}") == there, "it has not ended"
    end(driver, made, JobStatus.FAILED)
    sweeper.sweep()
    sweeper.passes(59)
    assert sweeper.names(f"ann/{made}") == there
    assert waiting(driver, made)
    sweeper.passes(1)
    kept = [] if new is new_batch else [f"ann/{made}/1.list", f"ann/{made}/2.done"]
    assert sweeper.names(f"ann/{made}") == kept
    assert not waiting(driver, made)
    sweeper.storage.write(f"ann/{made}/1.parsed", b"x")  # by a worker that was taken for dead
    sweeper.to_the_end()
    assert f"ann/{made}/1.parsed" in sweeper.names(f"ann/{made}"), "its end is worked off"
    sweeper.passes(DAY_MS / 1000)
    sweeper.to_the_end()
    assert seen(driver, made) is None
    assert sweeper.names(f"ann/{made}") == [], "its record has gone, and all of it"
    assert sweeper.names(f"ann/{other}") == [name.replace(made, other) for name in there]


def test_a_repeated_purge_takes_nothing_of_the_next_tenant_of_the_name(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, real = Storage.open(str(tmp_path / "storage")), Storage.delete
    sweep, denied = OwnerSweep(storage, lambda: None, driver.ledger), ["old"]

    def delete(self: Storage, name: str, *rest: Any) -> None:
        if name.split("/", maxsplit=1)[0] in denied:
            raise StorageUnavailable("It denies deleting.")
        real(self, name, *rest)

    def has_key_and_file(owner: str) -> None:
        key = Key(name=owner if owner == "eve" else "bob", owner=owner, digests=(), scopes=frozenset(), created=1)
        assert driver.run(make_key(key, new_change()))
        file = made_file(1, owner=owner)
        storage.write(file.stored, b"x")
        driver.run(put_file(file))

    def purge(*owners: str) -> list[bool]:
        for owner in owners:
            driver.run(make_mark(Mark(name="bob", owner=owner, purged=2.0)))
        sweep.sweep(driver.now_ms)
        marks = driver.run(store.read(Mark, owners))
        return [one is not None and one.record is not None and one.record.swept is not None for one in marks]

    monkeypatch.setattr(Storage, "delete", delete)
    for owner in ("old", "eve"):
        has_key_and_file(owner)
    assert purge("old", "eve") == [False, True], "what cannot be deleted now keeps nobody else's"
    denied.clear()
    driver.run(store.remove(Key, "old"))
    has_key_and_file("new")
    for _ in range(2):
        assert purge("old") == [True]
        storage.write("old/batch_1/1.rows", b"x")  # by a worker, long after the end
        sweep.sweep_late(driver.now_ms)
        assert [stored.name.split("/")[0] for stored in storage.stored("")] == ["new"]
    assert (driver.run(left_of("new")).files, driver.run(left_of("old")).files) == (1, 0)
    with raises_code("invalid_api_key"):
        driver.run(put_file(made_file(1, owner="old")))  # what waited somewhere all the time
