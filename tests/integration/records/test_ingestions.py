"""The record of an ingestion: created once, read as it is, listed by owner, gone in time."""

from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import State
from tasks.records.ingestions import (
    IngestionRecord,
    IngestionStatus,
    Sample,
    is_ingestion_id,
    new_ingestion_id,
)
from tasks.records.jobs import (
    Counts,
    DonePage,
    JobError,
    JobStatus,
    Page,
    Stage,
    all_done,
    find_job,
    list_jobs,
    read_done,
)
from tasks.records.moves import Move, cancel_job, retry_job
from tasks.records.store import Room, left_of
from tests.integration.ledger.driver import Driver
from tests.integration.records.jobs import (
    DAY_MS,
    DIGEST,
    HOUR_MS,
    NAME,
    SPEC,
    Sweeper,
    change,
    create,
    end,
    ingestion,
    job,
    make,
    new_ingestion,
    open_jobs,
    seen,
)
from tests.ledger_builders import new_task
from tests.raises_code import raises_code

S = IngestionStatus
LISTED = Page(src="anonymous/x/1.list", documents=3, size_bytes=100)
BEGUN = {"status": JobStatus.IN_PROGRESS, "revision": "r", "fingerprint": "f"}


def begins(move: Move) -> None:
    """It has a page that waits, and one that is done."""
    move.set(**BEGUN, next_page=3)
    move.pages.update({1: LISTED, 2: LISTED})
    move.close(2, DonePage("anonymous/x/2.done", Counts(documents=3, loaded=2, failed=1, chunks=8, bytes=90)))


def test_a_new_ingestion(driver: Driver) -> None:
    made = create(driver, new_ingestion())
    found = ingestion(driver, made)
    assert is_ingestion_id(made)
    assert (found.status, found.spec, found.model) == (S.QUEUED, SPEC, "org/model")
    assert (found.counts.documents, found.listing_complete, found.expires_ms) == (0, False, None)
    assert (found.record.roots, found.record.shares_table) == (None, False)
    assert open_jobs(driver, IngestionRecord) == {made}
    limited = ingestion(driver, create(driver, new_ingestion(roots=(), shares_table=True)))
    assert (limited.record.roots, limited.record.shares_table) == ((), True)


def test_an_owner_has_so_many_open_ingestions_at_a_time(driver: Driver) -> None:
    two = Room({"ingestions": 2})
    first = create(driver, new_ingestion(alias=NAME), two)
    create(driver, new_ingestion(), two)
    with raises_code("too_many_ingestions", match=r"2 ingestions .* 2 are allowed"):
        create(driver, new_ingestion(), two)
    assert len(open_jobs(driver, IngestionRecord)) == 2
    assert create(driver, new_ingestion(alias=NAME), two) == first, "a repetition is no new one"
    create(driver, new_ingestion("somebody"), two)
    end(driver, first, JobStatus.CANCELLED)
    create(driver, new_ingestion(), two)


def test_a_key_finds_its_ingestion_and_refuses_another_request(driver: Driver) -> None:
    def found(owner: str, digest: str = DIGEST) -> str | None:
        return driver.run(find_job(IngestionRecord, owner, (NAME, digest)))

    assert found("anonymous") is None
    first = create(driver, new_ingestion(alias=NAME))
    assert create(driver, new_ingestion(alias=NAME)) == found("anonymous") == first
    assert found("somebody") is None
    with raises_code("idempotency_key_reused"):
        create(driver, new_ingestion(alias=NAME), digest="e" * 32)
    with raises_code("idempotency_key_reused"):
        found("anonymous", "e" * 32)


def test_a_list_is_newest_first_and_by_owner(driver: Driver) -> None:
    mine = [create(driver, new_ingestion()) for _ in range(3)]
    create(driver, new_ingestion("else"))
    assert driver.run(list_jobs(IngestionRecord, "anonymous", after=None, limit=2)) == ([mine[2], mine[1]], True)
    assert driver.run(list_jobs(IngestionRecord, "anonymous", after=mine[1], limit=2)) == ([mine[0]], False)


@pytest.mark.parametrize("id_first", [True, False], ids=["a clock that ran ahead", "clocks agree"])
def test_a_later_ingestion_is_the_newer_one_whatever_its_host_thinks(driver: Driver, id_first: bool) -> None:
    def order(**changed: Any) -> int:
        return ingestion(driver, create(driver, new_ingestion(**changed))).order

    ids = sorted((new_ingestion_id() for _ in range(3)), reverse=id_first)
    orders = [order(id=each) for each in ids]  # all in one millisecond
    assert orders == sorted(set(orders))
    driver.advance(10)
    latest = order()
    assert latest // 1024 == driver.now_ms
    driver.advance(-DAY_MS)  # Redis's own clock is corrected
    assert order() == latest + 1
    driver.client.delete("eq:job-order")  # it has lost its data
    driver.advance(2 * DAY_MS)
    assert order() > latest + 1


def test_pages_are_read_as_they_were_written(driver: Driver) -> None:
    made = create(driver, new_ingestion())
    fault = JobError("a", "b", "c")
    was = DonePage("o", Counts(documents=3, failed=1))
    pages = {
        1: LISTED,
        2: Page(Stage.EMBED, True, "s", 3, 100, "o", "r", 40, 400, 0, 2),
        10: Page(Stage.LOAD, src="s", documents=3, size_bytes=100, tokens=9, fault=fault, was=was),
    }
    done = DonePage("d", Counts(*range(12)))

    def moves(move: Move) -> None:
        move.set(**BEGUN)
        move.pages.update(pages)
        move.pages[3] = LISTED
        move.close(3, done)
        move.new_tasks.append(new_task(task_id=move.record.task_id(2, Stage.EMBED)))

    change(driver, made, moves)
    found = ingestion(driver, made)
    assert (dict(found.pages), list(found.pages)) == (pages, [1, 2, 10])
    assert [task.state for task in found.tasks.values()] == [State.QUEUED]
    assert driver.run(read_done(made, "ingestion", [1, 3])) == {3: done}
    assert driver.run(read_done(made, "ingestion", [])) == {}
    assert driver.run(all_done(made, "ingestion")) == {3: done}
    assert change(driver, made, lambda move: move.pages.pop(2))
    assert list(job(driver, made).pages) == [1, 10]


def test_an_end_gives_everything_its_life_and_a_retry_takes_it_back(
    driver: Driver, redis_client: redis.Redis, tmp_path: Path
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = create(driver, new_ingestion(alias=NAME))
    change(driver, made, begins)
    sweeper.passes(10 * HOUR_MS / 1000)
    change(driver, made, lambda move: move.pages.clear())
    end(driver, made)
    assert job(driver, made).expires_ms == driver.now_ms + HOUR_MS
    assert open_jobs(driver, IngestionRecord) == set()
    sweeper.passes(HOUR_MS / 1000 - 1)

    assert make(driver, retry_job(ingestion(driver, made)))
    sweeper.passes(10 * HOUR_MS / 1000)
    sweeper.to_the_end()
    again = ingestion(driver, made)
    assert (again.status, again.record.looks_again, again.expires_ms) == (S.IN_PROGRESS, True, None)
    assert open_jobs(driver, IngestionRecord) == {made}

    end(driver, made, JobStatus.CANCELLED)
    sweeper.passes(HOUR_MS / 1000)
    sweeper.to_the_end()
    assert seen(driver, made) is None
    assert driver.run(list_jobs(IngestionRecord, "anonymous", after=None, limit=5)) == ([], False)
    assert driver.run(find_job(IngestionRecord, "anonymous", (NAME, DIGEST))) is None
    assert not [name for name in redis_client.keys("eq:*") if made.encode() in name or b"anonymous" in name]


@pytest.mark.parametrize("status", [JobStatus.COMPLETED, JobStatus.FAILED])
def test_all_that_an_ended_ingestion_takes_is_in_the_account_of_its_owner(
    driver: Driver, tmp_path: Path, status: JobStatus
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = create(driver, new_ingestion(alias=NAME))

    def lists(move: Move) -> None:
        move.set(**BEGUN, next_page=200, samples=(Sample(1, 2, 3, 4), Sample(2, 3, 4, 5)))
        move.pages.update({n: Page(src=f"anonymous/{made}/{n:08d}.list", documents=1000) for n in range(1, 200)})

    def closes(move: Move) -> None:
        for n in range(1, 100):
            move.close(n, DonePage(f"anonymous/{made}/{n:08d}.0123456789abcdef", Counts(*range(10**6, 10**6 + 12))))

    for move in (lists, closes, lambda move: move.stop(JobStatus.FAILED, JobError("a", "b"))):
        change(driver, made, move)
    end(driver, made, status)
    assert driver.run(left_of("anonymous")).memory_bytes >= driver.taken(made)
    sweeper.passes(HOUR_MS / 1000)
    sweeper.to_the_end()
    assert not driver.run(left_of("anonymous"))


def test_cancel_and_retry_only_where_they_make_sense(driver: Driver) -> None:
    made = create(driver, new_ingestion())
    assert retry_job(ingestion(driver, made)) is None
    assert make(driver, cancel_job(job(driver, made)))
    assert ingestion(driver, made).status is S.CANCELLING
    assert cancel_job(job(driver, made)) is None
    end(driver, made, JobStatus.CANCELLED)
    assert cancel_job(job(driver, made)) is None
    assert retry_job(ingestion(driver, made)) is None
    done = create(driver, new_ingestion())
    change(driver, done, lambda move: move.set(**BEGUN, listed=True))
    end(driver, done)
    assert retry_job(ingestion(driver, done)) is None, "nothing of it has failed"


def test_what_one_that_failed_has_still_to_do_is_kept_as_long_as_itself(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = create(driver, new_ingestion())
    change(driver, made, begins)
    change(driver, made, lambda move: move.stop(JobStatus.FAILED, JobError("worker_lost", "b")))
    end(driver, made, JobStatus.FAILED)
    assert ingestion(driver, made).resumable
    sweeper.to_the_end()
    sweeper.passes((ingestion(driver, made).expires_ms or 0) / 1000 - driver.now_ms / 1000 - 1)
    sweeper()
    assert make(driver, retry_job(ingestion(driver, made)))
    again = ingestion(driver, made)
    assert (again.status, dict(again.pages), again.error, again.resumable) == (S.IN_PROGRESS, {1: LISTED}, None, False)


def test_one_that_had_not_begun_is_not_tried_again(driver: Driver) -> None:
    made = create(driver, new_ingestion())
    change(driver, made, lambda move: move.stop(JobStatus.FAILED, JobError("unknown_model", "b")))
    end(driver, made, JobStatus.FAILED)
    assert not ingestion(driver, made).resumable
    assert retry_job(ingestion(driver, made)) is None


def test_what_is_embedded_of_an_open_page_counts_for_the_eta(driver: Driver) -> None:
    made = create(driver, new_ingestion())

    def embeds(move: Move) -> None:
        move.set(**BEGUN, listed=True)
        move.pages[1] = Page(Stage.EMBED, True, documents=10, size_bytes=800, chunks=40)
        task_id = move.record.task_id(1, Stage.EMBED)
        move.new_tasks.append(driver.new_task((10, 10), (30, 30), task_id=task_id))

    change(driver, made, embeds)
    driver.advance(1000)
    assert ingestion(driver, made).eta_s is None
    driver.commit(driver.claim(max_pieces=1))
    assert (ingestion(driver, made).counts.chunks_embedded, ingestion(driver, made).eta_s) == (10, 3)
    driver.work_off()
    assert ingestion(driver, made).bytes_through == 800
    change(driver, made, lambda move: move.put(1, at=Stage.LOAD))
    assert ingestion(driver, made).bytes_through == 800


@pytest.mark.parametrize(("spec", "chunks_per_s"), [({}, 10), ({"dry_run": True}, 40)])
def test_chunks_count_for_the_rate_when_they_are_embedded_not_when_they_are_loaded(
    driver: Driver, spec: dict[str, Any], chunks_per_s: int
) -> None:
    made = create(driver, new_ingestion(request=SPEC | spec))

    def embeds(move: Move) -> None:
        move.set(**BEGUN)
        move.pages[1] = Page(Stage.EMBED, True, documents=10, size_bytes=800, chunks=40)
        task_id = move.record.task_id(1, Stage.EMBED)
        move.new_tasks.append(driver.new_task((10, 10), (30, 30), task_id=task_id))

    change(driver, made, embeds)
    driver.commit(driver.claim(max_pieces=1))
    driver.advance(1000)
    rate = ingestion(driver, made).rate
    assert rate is not None
    assert rate.chunks_per_s == chunks_per_s


def test_a_page_that_is_tried_again_counts_as_before_until_it_is_done(driver: Driver) -> None:
    made = create(driver, new_ingestion())
    was = Counts(documents=10, loaded=8, failed=2, chunks=100, loaded_chunks=80, tokens=900, bytes=1000)
    change(driver, made, lambda move: move.set(**BEGUN, next_page=2, listed=True))
    change(driver, made, lambda move: move.pages.update({1: LISTED}), lambda move: move.close(1, DonePage("d", was)))
    end(driver, made)
    before = ingestion(driver, made)
    assert make(driver, retry_job(before))
    for at, chunks in ((Stage.PARSE, 0), (Stage.EMBED, 20), (Stage.LOAD, 20)):
        page = Page(at, src="d", documents=10, size_bytes=1000, chunks=chunks, was=DonePage("d", was))
        change(driver, made, lambda move: move.pages.update({1: page}))  # noqa: B023
        again = ingestion(driver, made)
        assert (at, again.counts) == (at, before.counts)
    now = was._replace(loaded=10, failed=0, loaded_chunks=110, chunks=110)
    change(driver, made, lambda move: move.close(1, DonePage("e", now)))
    done = ingestion(driver, made)
    assert (done.record.sums, done.record.done_pages) == (now, 1)
    assert driver.run(all_done(made, "ingestion")) == {1: DonePage("e", now)}


def test_rate_and_eta(driver: Driver) -> None:
    made = create(driver, new_ingestion())

    def at(documents: int, chunks: int, size_bytes: int) -> Counts:
        return Counts(documents=documents, loaded=documents - 5, failed=5, chunks=chunks, bytes=size_bytes)

    def lists(move: Move) -> None:
        move.set(**BEGUN)
        move.pages.update({1: Page(documents=10, size_bytes=100), 2: Page(documents=20, size_bytes=300)})
        move.pages[3] = Page(documents=70, size_bytes=600)

    change(driver, made, lists)
    assert (ingestion(driver, made).rate, ingestion(driver, made).eta_s) == (None, None)
    change(driver, made, lambda move: move.close(1, DonePage("d", at(10, 20, 100))))
    change(driver, made, lambda move: move.set(samples=(ingestion(driver, made).sample,), listed=True))
    change(driver, made, lambda move: move.close(2, DonePage("d", at(20, 40, 300))))
    driver.advance(10_000)
    found = ingestion(driver, made)
    rate = found.rate
    assert rate is not None
    assert (rate.documents_per_s, rate.chunks_per_s, rate.bytes_per_s) == (2, 4, 30)
    assert found.eta_s == 20
    change(driver, made, lambda move: move.pages.clear(), lambda move: move.end(JobStatus.COMPLETED))
    ended = ingestion(driver, made)
    rate = ended.rate
    assert rate is not None
    assert (rate.documents_per_s, ended.eta_s) == (3, None)


def test_metrics_count_ends_documents_and_what_was_away(driver: Driver) -> None:
    def totals() -> dict[str, int]:
        return dict(driver.run(overview(DOCUMENTS))[DOCUMENTS].counters)

    first, second = create(driver, new_ingestion()), create(driver, new_ingestion())
    assert driver.run(overview(DOCUMENTS))[DOCUMENTS].redis.open_ingestions == 2
    change(driver, first, lambda move: move.set(**BEGUN), lambda move: move.pages.update({1: LISTED, 2: LISTED}))
    change(driver, first, lambda move: move.close(1, DonePage("d", Counts(documents=3, loaded=2, failed=1))))
    change(driver, first, lambda move: move.close(2, DonePage("d", Counts(documents=3, loaded=1, unchanged=2))))
    waits = Move(job(driver, first))
    waits.pause("sink", Stage.LOAD)
    waits.pause("sink", Stage.LOAD)
    operation = waits.operation()
    for _ in range(2):  # the worker asks again, because the reply was lost
        driver.run(operation)
    end(driver, first)
    end(driver, second, JobStatus.FAILED)
    assert totals() == {
        "ingested_loaded": 3,
        "ingested_unchanged": 2,
        "ingested_failed": 1,
        "setbacks_sink": 1,
        "ingestions_completed": 1,
        "ingestions_failed": 1,
    }
