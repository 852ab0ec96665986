"""The record of an ingestion: created once, changed whole or not at all, listed by owner, gone in time."""

import dataclasses
from typing import Any

import pytest
import redis

from tasks.ledger.heartbeat import watch
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.ingestion_operations import (
    Move,
    Moved,
    cancel_ingestion,
    close_ingestion,
    create_ingestion,
    find_ingestion,
    list_ingestions,
    move_ingestion,
    open_ingestions,
    read_closed,
    read_ingestion,
    resume_ingestion,
    retry_ingestion,
)
from tasks.records.ingestions import (
    ClosedPage,
    Counts,
    Ingestion,
    IngestionStatus,
    NewIngestion,
    PageInFlight,
    PageStage,
    WaitingPage,
    is_ingestion_id,
    new_ingestion_id,
)
from tasks.records.store import Room, left_of
from tests.integration.ledger.driver import Driver
from tests.raises_code import raises_code

HOUR_MS = 3_600_000
KEY = ("a" * 32, "d" * 32)
SPEC = {"source": {"files": ["file-1"]}, "model": "org/model", "mode": "sync"}
S = IngestionStatus
WAITING = [WaitingPage(n, f"{n:016x}", 3, 100) for n in range(3)]


def new(owner: str = "anonymous", **changed: Any) -> NewIngestion:
    return dataclasses.replace(NewIngestion(new_ingestion_id(), owner, SPEC, HOUR_MS), **changed)


def read(driver: Driver, ingestion_id: str) -> Ingestion:
    ingestion = driver.run(read_ingestion(ingestion_id))
    assert ingestion is not None
    return ingestion


def created(driver: Driver, **changed: Any) -> str:
    return driver.run(create_ingestion(new(**changed)))


def move(driver: Driver, ingestion_id: str, **what: Any) -> bool:
    return driver.run(move_ingestion(ingestion_id, Move(**{"only_from": [S.QUEUED, S.IN_PROGRESS], **what}))).moved


def page(number: int, stage: PageStage = PageStage.PARSE, **known: Any) -> PageInFlight:
    return PageInFlight(number, stage, f"ingestions/x/work/{number:08d}/manifest.f", 3, 100, **known)


def test_a_new_ingestion(driver: Driver) -> None:
    made = created(driver)
    ingestion = read(driver, made)
    assert is_ingestion_id(made)
    assert (ingestion.status, ingestion.spec, ingestion.model) == (S.QUEUED, SPEC, "org/model")
    assert (ingestion.counts.documents, ingestion.listing_complete, ingestion.expires_ms) == (0, False, None)
    assert (ingestion.roots, ingestion.shares_table) == (None, False)
    assert driver.run(open_ingestions(10)) == [made]
    limited = read(driver, created(driver, roots=(), shares_table=True))
    assert (limited.roots, limited.shares_table) == ([], True)


def test_an_owner_has_so_many_open_ingestions_at_a_time(driver: Driver) -> None:
    first = driver.run(create_ingestion(new(key=("again", "digest")), Room({"ingestions": 2})))
    driver.run(create_ingestion(new(), Room({"ingestions": 2})))
    with raises_code("too_many_ingestions", match=r"2 ingestions .* 2 are allowed"):
        driver.run(create_ingestion(new(), Room({"ingestions": 2})))
    assert len(driver.run(open_ingestions(10))) == 2
    again = new(key=("again", "digest"))
    assert driver.run(create_ingestion(again, Room({"ingestions": 2}))) == first, "a repetition is no new one"
    driver.run(create_ingestion(new("somebody"), Room({"ingestions": 2})))
    move(driver, first, to=S.CANCELLED)
    driver.run(create_ingestion(new(), Room({"ingestions": 2})))


def test_a_key_finds_its_ingestion_and_refuses_another_request(driver: Driver) -> None:
    assert driver.run(find_ingestion("anonymous", KEY)) is None
    first = created(driver, key=KEY)
    assert created(driver, key=KEY) == driver.run(find_ingestion("anonymous", KEY)) == first
    assert driver.run(find_ingestion("somebody", KEY)) is None
    other = (KEY[0], "e" * 32)
    with raises_code("idempotency_key_reused"):
        created(driver, key=other)
    with raises_code("idempotency_key_reused"):
        driver.run(find_ingestion("anonymous", other))


def test_a_list_is_newest_first_and_by_owner(driver: Driver) -> None:
    mine = [created(driver) for _ in range(3)]
    created(driver, owner="else")
    assert driver.run(list_ingestions("anonymous", after=None, limit=2)) == ([mine[2], mine[1]], True)
    assert driver.run(list_ingestions("anonymous", after=mine[1], limit=2)) == ([mine[0]], False)


@pytest.mark.parametrize("id_first", [True, False], ids=["a clock that ran ahead", "clocks agree"])
def test_a_later_ingestion_is_the_newer_one_whatever_its_host_thinks(driver: Driver, id_first: bool) -> None:
    ids = sorted((new_ingestion_id() for _ in range(3)), reverse=id_first)
    orders = [read(driver, created(driver, id=each)).order for each in ids]  # all in one millisecond
    assert orders == sorted(set(orders))
    driver.advance(10)
    assert read(driver, created(driver)).order == driver.now_ms
    driver.advance(-86_400_000)  # Redis's own clock is corrected
    assert read(driver, created(driver)).order == driver.now_ms + 86_400_001
    driver.client.delete("eq:ingestion-order")  # it has lost its data
    driver.advance(2 * 86_400_000)
    assert read(driver, created(driver)).order > orders[-1]


def test_a_move_changes_all_of_what_it_names(driver: Driver) -> None:
    made = created(driver)
    assert move(driver, made, to=S.IN_PROGRESS, set={"fingerprint": "f"}, add={"documents": 9}, wait=WAITING)
    assert move(driver, made, begin=WAITING[:1], stages={0: None}, put=[page(0)])
    ingestion = read(driver, made)
    assert (ingestion.status, ingestion.fingerprint, ingestion.counts.documents) == (S.IN_PROGRESS, "f", 9)
    assert (ingestion.waiting_pages, list(ingestion.begin_next), ingestion.pages) == (2, WAITING[1:], {0: page(0)})
    fault = page(0, PageStage.READY, parsed="p", source="s", index="i", chunks=4, fault=("a", "b"))
    assert move(driver, made, stages={0: PageStage.PARSE}, put=[fault], unset=["fingerprint"])
    assert read(driver, made).pages == {0: fault}
    assert read(driver, made).fingerprint is None
    done = ClosedPage(0, "ingestions/x/documents/0.f.jsonl", 2, 0, 1)
    assert move(driver, made, drop=[0], close=[done], add={"loaded": 2, "failed": 1})
    assert read(driver, made).pages == {}
    assert driver.run(read_closed(made, 0, 3)) == [done]


@pytest.mark.parametrize(
    "guard",
    [
        {"only_from": [S.QUEUED]},
        {"equal": {"list_number": 4}},
        {"equal": {"fingerprint": "f"}},
        {"stages": {7: None}},
        {"stages": {7: PageStage.EMBED}},
        {"stages": {8: PageStage.PARSE}},
        {"begin": WAITING[1:]},
    ],
    ids=str,
)
def test_a_move_whose_expectation_fails_changes_nothing(driver: Driver, guard: dict[str, Any]) -> None:
    made = created(driver)
    move(driver, made, to=S.IN_PROGRESS, put=[page(7)], wait=WAITING, set={"list_number": 3})
    before = read(driver, made)
    assert not move(
        driver,
        made,
        to=S.FAILED,
        set={"error": "x", "list_number": 9},
        add={"documents": 1},
        put=[page(9)],
        drop=[7],
        close=[ClosedPage(1, "x", 0, 0, 0)],
        **guard,
    )
    assert read(driver, made) == before
    assert driver.run(read_closed(made, 0, 3)) == []


def test_a_move_of_one_that_is_gone(driver: Driver) -> None:
    assert driver.run(move_ingestion(new_ingestion_id(), Move(only_from=[S.QUEUED]))) == Moved(False, None)


def passes(driver: Driver, ms: int) -> None:
    """So much time, and somebody keeps house."""
    driver.advance(ms)
    driver.run(watch(DOCUMENTS))


def test_an_end_gives_everything_its_life_and_a_retry_takes_it_back(driver: Driver, redis_client: redis.Redis) -> None:
    made = created(driver, key=KEY)
    move(driver, made, to=S.IN_PROGRESS, wait=WAITING, put=[page(0)], close=[ClosedPage(3, "x", 1, 0, 1)])
    passes(driver, 10 * HOUR_MS)
    move(driver, made, to=S.COMPLETED, drop=[0])
    assert read(driver, made).waiting_pages == 0
    assert read(driver, made).expires_ms == driver.now_ms + HOUR_MS
    assert driver.run(open_ingestions(9)) == [made]  # its traces are still to be removed
    driver.run(close_ingestion(made))
    assert driver.run(open_ingestions(9)) == []
    passes(driver, HOUR_MS - 1)

    assert driver.run(retry_ingestion(made)) == Moved(True, S.IN_PROGRESS)
    passes(driver, 10 * HOUR_MS)
    assert (read(driver, made).cursor, driver.run(open_ingestions(9))) == ({"retry": 0}, [made])
    driver.run(close_ingestion(made))  # by a step that saw its earlier end
    assert driver.run(open_ingestions(9)) == [made]

    move(driver, made, to=S.CANCELLED)
    passes(driver, HOUR_MS)
    assert driver.run(read_ingestion(made)) is None
    assert driver.run(list_ingestions("anonymous", after=None, limit=5)) == ([], False)
    assert driver.run(find_ingestion("anonymous", KEY)) is None
    assert not [name for name in redis_client.keys("eq:*") if made.encode() in name or b"anonymous" in name]


@pytest.mark.parametrize("end", [S.COMPLETED, S.FAILED])
def test_all_that_an_ended_ingestion_takes_is_in_the_account_of_its_owner(driver: Driver, end: S) -> None:
    made = created(driver, key=KEY)
    counts = {"documents": 10_000, "bytes": 10**9, "loaded": 9_000, "failed": 1000, "chunks": 90_000}
    entries = [WaitingPage(n, f"{n:016x}", 1000, 10**6) for n in range(100)]
    move(driver, made, to=S.IN_PROGRESS, wait=entries, add=counts, set={"s0": "1 2 3 4", "s1": "2 3 4 5"})
    closed = [ClosedPage(n, f"ingestions/{made}/documents/{n:08d}.0123456789abcdef.jsonl", 9, 1, 10) for n in range(99)]
    move(driver, made, close=closed)
    move(driver, made, to=end, set={"error": '{"code":"a","message":"b"}', "resumable": "1"})
    driver.run(close_ingestion(made))
    assert driver.run(left_of("anonymous")).memory_bytes >= driver.taken(made)
    passes(driver, HOUR_MS)
    assert driver.run(left_of("anonymous")).memory_bytes == 0


def test_cancel_and_retry_only_where_they_make_sense(driver: Driver) -> None:
    made = created(driver)
    assert driver.run(retry_ingestion(made)) == Moved(False, S.QUEUED)
    assert driver.run(cancel_ingestion(made)) == Moved(True, S.CANCELLING)
    assert driver.run(cancel_ingestion(made)) == Moved(False, S.CANCELLING)
    move(driver, made, only_from=[S.CANCELLING], to=S.CANCELLED)
    assert driver.run(retry_ingestion(made)) == Moved(False, S.CANCELLED)
    refused = created(driver)
    move(driver, refused, to=S.FAILED, set={"error": '{"code":"a","message":"b"}'})
    assert driver.run(retry_ingestion(refused)) == driver.run(resume_ingestion(refused)) == Moved(False, S.FAILED)


def test_what_a_resumable_one_has_still_to_do_is_kept_as_long_as_itself(driver: Driver) -> None:
    made = created(driver)
    move(driver, made, to=S.IN_PROGRESS, wait=WAITING)
    move(driver, made, to=S.FAILED, set={"error": '{"code":"a","message":"b"}', "resumable": "1"})
    driver.run(close_ingestion(made))
    passes(driver, HOUR_MS - 1)
    assert driver.run(retry_ingestion(made)) == Moved(False, S.FAILED)
    assert driver.run(resume_ingestion(made)) == Moved(True, S.IN_PROGRESS)
    ingestion = read(driver, made)
    assert (list(ingestion.begin_next), ingestion.error, ingestion.resumable) == (WAITING, None, False)


def test_what_is_embedded_of_a_page_in_flight_counts_for_the_eta() -> None:
    def at(now_ms: int, embedded: int, stage: PageStage = PageStage.EMBED) -> Ingestion:
        page = PageInFlight(0, stage, "m", documents=10, size_bytes=800, chunks=40, embedded=embedded)
        counts = Counts(documents=10, bytes=800)
        return Ingestion(
            "ing_1", "me", S.IN_PROGRESS, {}, 0, now_ms, counts, listing_complete=True, pages={0: page},
            times={S.IN_PROGRESS: 0},
        )  # fmt: skip

    assert at(1000, 0).eta_s is None
    assert at(1000, 10).eta_s == 3
    assert at(2000, 40).bytes_through == at(2000, 0, PageStage.READY).bytes_through == 800


@pytest.mark.parametrize(("spec", "chunks_per_s"), [({}, 10), ({"dry_run": True}, 40)])
def test_chunks_count_for_the_rate_when_they_are_embedded_not_when_they_are_loaded(
    spec: dict[str, Any], chunks_per_s: int
) -> None:
    counts = Counts(documents=10, bytes=800, chunks=40, chunks_embedded=10)
    page = PageInFlight(0, PageStage.EMBED, "m", documents=10, size_bytes=800, chunks=40, embedded=10)
    times = {S.IN_PROGRESS: 0}
    ingestion = Ingestion("ing_1", "me", S.IN_PROGRESS, spec, 0, 1000, counts, True, pages={0: page}, times=times)
    assert ingestion.rate is not None
    assert ingestion.rate.chunks_per_s == chunks_per_s


def test_rate_and_eta(driver: Driver) -> None:
    made = created(driver)
    move(driver, made, to=S.IN_PROGRESS, add={"documents": 100, "bytes": 1000})
    assert (read(driver, made).rate, read(driver, made).eta_s) == (None, None)
    move(driver, made, set={"s0": f"{driver.now_ms} 10 20 100", "listing_complete": "1"})
    move(driver, made, add={"loaded": 25, "failed": 5, "chunks_embedded": 60, "bytes_done": 400})
    driver.advance(10_000)
    ingestion = read(driver, made)
    rate = ingestion.rate
    assert rate is not None
    assert (rate.documents_per_s, rate.chunks_per_s, rate.bytes_per_s) == (2, 4, 30)
    assert ingestion.eta_s == 20
    move(driver, made, to=S.COMPLETED)
    rate, ended = read(driver, made).rate, read(driver, made)
    assert rate is not None
    assert (rate.documents_per_s, ended.eta_s) == (3, None)


def test_metrics_count_ends_documents_and_what_was_away(driver: Driver) -> None:
    def totals() -> dict[str, int]:
        return dict(driver.run(overview(DOCUMENTS))[DOCUMENTS].counters)

    first, second = created(driver), created(driver)
    assert driver.run(overview(DOCUMENTS))[DOCUMENTS].redis.open_ingestions == 2
    move(driver, first, to=S.IN_PROGRESS, add={"loaded": 3, "unchanged": 1, "failed": 2, "chunks_embedded": 9})
    move(driver, first, add={"loaded": 1, "failed": -2, "chunks": 5})
    for _ in range(2):  # the worker asks again, because the reply was lost
        move(driver, first, set={"setback_load": "1 1900000000000 sink"})
    move(driver, first, to=S.COMPLETED)
    assert not move(driver, first, to=S.FAILED, add={"loaded": 1}), "it has ended"
    move(driver, second, to=S.FAILED)
    assert totals() == {
        "ingested_loaded": 4,
        "ingested_unchanged": 1,
        "ingested_failed": 2,
        "ingested_chunks_embedded": 9,
        "setbacks_sink": 1,
        "ingestions_completed": 1,
        "ingestions_failed": 1,
    }
