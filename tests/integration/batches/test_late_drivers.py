"""Drivers that believe in an older state, and rows of a batch that find a full queue: what was accepted goes on."""

from itertools import count

import pytest

from tasks.ingestion.driver import Driver
from tasks.ledger.cancel import forget
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Lane
from tasks.records.batches import Batch, BatchStatus
from tasks.records.files import delete_file, read_file
from tasks.records.moves import cancel_job
from tests.integration.batches.hands import MODEL, Hands, half_way, nothing_is_left, request
from tests.ledger_client import LedgerClient


def embeds(hands: Hands, batch_id: str) -> bool:
    """Whether its rows are in the queue of the model."""
    return f"{batch_id}-1-embed" in hands.batch(batch_id).tasks


def test_a_driver_that_has_not_heard_of_a_cancellation_submits_nothing(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x")])
    hands.step()
    hands.work_documents()
    checked = hands.batch(batch_id)
    assert hands.move(cancel_job, checked)
    assert hands.driver.move_on(checked), "it reads the batch anew"
    assert not embeds(hands, batch_id)
    hands.work()
    assert hands.batch(batch_id).status is BatchStatus.CANCELLED
    hands.driver.move_on(checked)
    assert not embeds(hands, batch_id), "nobody else would end it"
    nothing_is_left(hands, hands.batch(batch_id))


def test_an_output_file_that_its_owner_deleted_does_not_come_back(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x")])
    hands.until(lambda: hands.batch(batch_id).status is BatchStatus.FINALIZING)
    assert hands.work_documents() == 1
    assembled = hands.batch(batch_id)
    hands.step()
    output = hands.batch(batch_id).output_file_id
    assert output is not None
    hands.ledger.run(delete_file(output))
    hands.driver.move_on(assembled)
    assert hands.ledger.run(read_file(output)) is None
    assert hands.batch(batch_id).status is BatchStatus.COMPLETED
    hands.work()
    nothing_is_left(hands, hands.batch(batch_id))


def test_every_move_may_be_made_twice(hands: Hands) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(9)])
    seen: list[Batch] = []
    for _ in range(12):
        seen.append(hands.batch(batch_id))
        hands.step()
        for old in seen:  # every state that any worker may still believe in
            hands.driver.move_on(old)
        hands.work_documents()
        hands.work_model(limit=1)
    batch = hands.batch(batch_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (9, 9, 0))
    assert [line["custom_id"] for line in hands.lines(batch.output_file_id)] == [f"{n}" for n in range(9)]
    assert (hands.ran["1 parse"], hands.ran["1 load"]) == (1, 1)
    hands.sweep()
    for old in seen:  # now it is swept
        hands.driver.move_on(old)
    nothing_is_left(hands, hands.batch(batch_id))
    assert (hands.work_documents(), hands.work_model()) == (0, 0)
    assert hands.ledger.run(overview(DOCUMENTS))[DOCUMENTS].leases == 0


def test_a_batch_that_was_accepted_is_not_judged_by_what_waits(hands: Hands) -> None:
    """Nothing may wait, and the first batch does."""
    hands.driver.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 1e-9})
    half_way(hands)
    second = hands.create([request(f"{number}", "xxxx") for number in range(3)])
    hands.until(lambda: embeds(hands, second), model=False)


def test_a_lane_that_callers_fill_keeps_no_batch_out(hands: Hands) -> None:
    """Twenty tokens may wait at the speed that is assumed, and the caller's own tasks are as many."""
    hands.driver.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 0.005})
    client = LedgerClient(hands.ledger, MODEL)
    tasks = [client.submit(["x"], lane=Lane.BULK) for _ in range(20)]
    batch_id = hands.create([request(f"{number}", "xxxx") for number in range(3)])
    hands.until(lambda: embeds(hands, batch_id), model=False)
    hands.ledger.run(forget(MODEL, *tasks))  # these hands encode rows alone
    hands.work()
    assert hands.batch(batch_id).status is BatchStatus.COMPLETED


def test_rows_of_an_accepted_batch_are_let_in_by_a_full_redis(hands: Hands) -> None:
    """They are references of a few bytes; who waits for the batch was told long ago that it is accepted."""
    batch_id = hands.create([request("a", "x")])
    hands.step()
    hands.work_documents()
    redis = hands.ledger.client
    limit = redis.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis.config_set("maxmemory", 1_000_000)
    hands.step()
    redis.config_set("maxmemory", limit)
    assert embeds(hands, batch_id)


def test_a_round_goes_over_all_open_jobs(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ingestion.driver._AT_ONCE", 2)
    made = [hands.create([request("1", "text")]) for _ in range(5)]
    hands.step()
    assert {str(hands.batch(batch_id).record.status) for batch_id in made} == {"in_progress"}


def test_a_round_ends_when_another_worker_drives(hands: Hands) -> None:
    made = [hands.create([request("1", "text")]) for _ in range(3)]
    seconds, asked, asks = count(), count(), count()
    rival = Driver(hands.ledger, hands.storage, hands.settings, stop=lambda: next(asks) > 0)  # after one job

    def another_drives() -> bool:
        if next(asked) == 1:  # before the second job
            hands.driver.leave()
            rival()
        return False

    hands.driver.stop, hands.driver.clock = another_drives, lambda: next(seconds)
    hands.driver()
    begun = [batch_id for batch_id in made if hands.batch(batch_id).pages]
    assert begun == made[-1:], "the newest"
    rival.leave()
    hands.driver()
    assert all(hands.batch(batch_id).pages for batch_id in made)
