"""Steps that believe in an older state, and steps that find no room: they harm nobody and cost little."""

import dataclasses

from tasks.documents.batches.steps import step
from tasks.ledger.cancel import forget
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Lane, State
from tasks.records.batches import Batch, BatchStatus, Stage, move_batch
from tasks.records.files import delete_file, read_file
from tests.integration.batches.hands import MODEL, Hands, half_way, nothing_is_left, request
from tests.ledger_client import LedgerClient

ONE_BATCH = 200
"""Bytes: one reference to rows and not two."""


def test_cancelling_between_two_thoughts_of_a_step(hands: Hands) -> None:
    # The embed task is submitted by a worker that has not heard of the cancellation yet.
    batch_id = hands.create([request("a", "x")])
    hands.step()
    hands.work_documents()
    submitted = hands.batch(batch_id)
    hands.ledger.run(move_batch(batch_id, BatchStatus.CANCELLING, only_from=[BatchStatus.VALIDATING]))
    hands.work()
    assert hands.batch(batch_id).status is BatchStatus.CANCELLED
    step(hands.step_context, submitted)
    assert hands.batch(batch_id).stages == {}, "nobody else would end it"


def test_an_output_file_that_its_owner_deleted_does_not_come_back(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x")])
    hands.until(lambda: hands.batch(batch_id).stages.get(Stage.ASSEMBLE) is State.COMPLETED)
    assembled = hands.batch(batch_id)
    assert assembled.status is BatchStatus.FINALIZING
    hands.step()
    output = hands.batch(batch_id).output_file_id
    assert output is not None
    hands.ledger.run(delete_file(output))
    step(hands.step_context, assembled)
    assert hands.ledger.run(read_file(output)) is None
    assert hands.batch(batch_id).status is BatchStatus.COMPLETED
    hands.work()


def test_a_batch_whose_rows_began_meanwhile_does_not_end_without_them(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x")])
    hands.step()
    hands.work_documents()
    seen = hands.batch(batch_id)
    hands.step()
    step(hands.step_context, dataclasses.replace(seen, now_ms=seen.expires_ms))
    assert hands.batch(batch_id).status is BatchStatus.IN_PROGRESS
    hands.work()
    assert hands.batch(batch_id).status is BatchStatus.COMPLETED


def test_every_step_may_be_taken_twice(hands: Hands) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(9)])
    seen: list[Batch] = []
    for _ in range(12):
        seen.append(hands.batch(batch_id))
        for old in seen:  # every state that any worker may still believe in
            step(hands.step_context, old)
        hands.work_documents()
        hands.work_model(limit=1)
    batch = hands.batch(batch_id)
    assert (batch.status, batch.completed) == (BatchStatus.COMPLETED, 9)
    assert [line["custom_id"] for line in hands.lines(batch.output_file_id)] == [f"{n}" for n in range(9)]
    hands.work()
    for old in seen:  # now it is tidied up
        step(hands.step_context, old)
        nothing_is_left(hands, hands.batch(batch_id))
    assert (hands.work_documents(), hands.work_model()) == (0, 0)
    assert hands.ledger.run(overview(DOCUMENTS))[DOCUMENTS].leases == 0


def test_a_batch_that_was_accepted_is_not_judged_by_what_waits(hands: Hands) -> None:
    """Nothing may wait, and the first batch does."""
    hands.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 1e-9})
    half_way(hands)
    second = hands.create([request(f"{number}", "xxxx") for number in range(3)])
    hands.until(lambda: Stage.EMBED in hands.batch(second).stages, model=False)


def test_a_lane_that_callers_fill_keeps_no_batch_out(hands: Hands) -> None:
    """Twenty tokens may wait at the speed that is assumed, and the caller's own tasks are as many."""
    hands.settings = hands.settings.model_copy(update={"max_backlog_bulk_s": 0.005})
    client = LedgerClient(hands.ledger, MODEL)
    tasks = [client.submit(["x"], lane=Lane.BULK) for _ in range(20)]
    batch_id = hands.create([request(f"{number}", "xxxx") for number in range(3)])
    hands.until(lambda: Stage.EMBED in hands.batch(batch_id).stages, model=False)
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
    assert Stage.EMBED in hands.batch(batch_id).stages


def test_requests_that_were_submitted_since_the_round_began_are_not_ended_unseen(hands: Hands) -> None:
    batch_id = hands.create([request("a", "x")])
    hands.step()
    hands.work_documents()
    validated = hands.batch(batch_id)
    hands.ledger.run(move_batch(batch_id, BatchStatus.CANCELLING, only_from=[BatchStatus.VALIDATING]))
    cancelling = hands.batch(batch_id)
    step(hands.step_context, validated)  # another worker's, which submits the requests
    assert Stage.EMBED in hands.batch(batch_id).stages
    step(hands.step_context, cancelling)
    assert hands.batch(batch_id).status is BatchStatus.CANCELLING
    hands.work()
    assert hands.batch(batch_id).status is BatchStatus.CANCELLED
    nothing_is_left(hands, hands.batch(batch_id))
