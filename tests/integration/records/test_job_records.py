"""The record of a batch or an ingestion: created once, listed by owner, gone in time; its rate, and its metrics."""

from pathlib import Path
from typing import Any

import pytest

from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.batches import BatchRecord
from tasks.records.ingestions import (
    new_ingestion_id,
)
from tasks.records.jobs import (
    Counts,
    DonePage,
    JobStatus,
    Page,
    Stage,
    list_jobs,
)
from tasks.records.moves import Move
from tasks.records.stage_tasks import embed_task
from tasks.records.store import Room
from tests.integration.ledger.driver import MODEL, Driver, new_pieces
from tests.integration.records.jobs import (
    DAY_MS,
    HOUR_MS,
    NAME,
    SPEC,
    Sweeper,
    change,
    create,
    end,
    ingestion,
    job,
    new_batch,
    new_ingestion,
    open_jobs,
)
from tests.raises_code import raises_code

LISTED = Page(src="anonymous/x/1.list", documents=3, size_bytes=100)
BEGUN = {"status": JobStatus.IN_PROGRESS, "revision": "r", "fingerprint": "f"}


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


def batch_begins(move: Move) -> None:
    """Its lines are checked, and ten texts of five requests wait for the model."""
    move.set(status=JobStatus.IN_PROGRESS, model=MODEL, next_page=2)
    move.pages[1] = Page(at=Stage.EMBED, under_way=True, documents=5, chunks=10)
    move.new_tasks.append(embed_task(move.record, 1, new_pieces((10, 10)), None))


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
    assert open_jobs(driver, BatchRecord) == {foreign, *ids}
    end(driver, ids[2])
    assert listed("anonymous", ids[3], 4) == ([ids[2], ids[1], ids[0]], False), "it has ended, and is there"
    sweeper.passes(HOUR_MS / 1000)
    sweeper()
    assert listed("anonymous", ids[3], 4) == ([ids[1], ids[0]], False), "it has expired"


def test_open_jobs_of_a_key_are_tasks_batches_and_ingestions(driver: Driver) -> None:
    three = Room({"jobs": 3})
    made = create(driver, new_batch(alias=NAME), three)
    create(driver, new_ingestion(), three)
    task = driver.submit(listed=True).task_id
    for record in (new_batch(), new_ingestion()):
        with raises_code("key_limit", match="open_jobs is 3, and 3 have not ended") as refused:
            create(driver, record, three)
        assert refused.value.retry_after_s is not None
    assert create(driver, new_batch(alias=NAME), three) == made, "a repetition is no new one"
    driver.cancel(task)
    create(driver, new_ingestion(), three)
    end(driver, made, JobStatus.CANCELLED)
    create(driver, new_batch(), three)


def test_metrics_count_the_ends_of_batches(driver: Driver) -> None:
    one, two, three, _ = (create(driver, new_batch()) for _ in range(4))
    change(driver, one, batch_begins)
    for batch_id in (one, two):
        end(driver, batch_id, JobStatus.FAILED)
    end(driver, three, JobStatus.CANCELLED)
    documents = driver.run(overview(DOCUMENTS))[DOCUMENTS]
    assert documents.counters == {"batches_failed": 2, "batches_cancelled": 1}
    assert documents.redis.open_batches == 1
