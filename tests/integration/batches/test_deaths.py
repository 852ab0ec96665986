"""Documents workers that die in the stages of a batch, and vectors that are gone: what the model has done is kept."""

from collections.abc import Callable

import pytest

from tasks.ledger.cancel import cancel
from tasks.records.batches import Batch, BatchStatus
from tasks.records.jobs import Stage
from tests.integration.batches.hands import HOUR_MS, MODEL, Hands, half_way, nothing_is_left, request

DEATHS = 4
"""Of a worker in one and the same stage, until the ledger gives it up."""
STAGES = [Stage.PARSE, Stage.LOAD]
"""Of a documents worker."""
ROWS = 10


def dying(hands: Hands, stage: Stage) -> Callable[[], None]:
    """Steps and works; each call is later than all pauses."""
    hands.deadly_stages.add(f"1 {stage}")

    def go_on() -> None:
        hands.ledger.clock_offset_ms += 60_000
        hands.step()
        hands.work_documents()
        hands.work_model()

    return go_on


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_whose_workers_were_killed_is_tried_again_later(hands: Hands, stage: Stage) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(ROWS)])
    name, go_on = f"1 {stage}", dying(hands, stage)
    while hands.ran[name] < DEATHS:
        go_on()
    hands.deadly_stages.clear()
    finalizing = hands.batch(batch_id).times.get(BatchStatus.FINALIZING)
    for _ in range(3):
        hands.step()
        hands.work_documents()
    assert hands.ran[name] == DEATHS, "not at once"
    hands.ledger.clock_offset_ms += 1000
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, batch.counts, batch.record.wait) == (BatchStatus.COMPLETED, (ROWS, ROWS, 0), None)
    assert finalizing in {None, batch.times[BatchStatus.FINALIZING]}, "the state was reached before"
    assert len(hands.lines(batch.output_file_id)) == ROWS
    nothing_is_left(hands, batch)


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_is_tried_again_soon_though_the_clock_of_redis_has_gone_back(hands: Hands, stage: Stage) -> None:
    batch_id = hands.create([request("a", "x")])
    go_on = dying(hands, stage)
    while hands.batch(batch_id).record.wait is None:
        go_on()
    hands.deadly_stages.clear()
    hands.ledger.clock_offset_ms -= HOUR_MS
    hands.work()
    assert hands.batch(batch_id).status is BatchStatus.COMPLETED


@pytest.mark.parametrize("stage", STAGES)
def test_a_job_that_kills_every_worker_fails_its_batch(hands: Hands, stage: Stage) -> None:
    batch_id = hands.create([request("a", "x")])
    go_on = dying(hands, stage)
    for _ in range(30):
        go_on()
    batch = hands.batch(batch_id)
    assert hands.ran[f"1 {stage}"] == 4 * DEATHS
    assert (batch.status, [fault.code for fault in batch.errors]) == (BatchStatus.FAILED, ["worker_lost"])


def embedded(batch: Batch) -> bool:
    """Whether all of it is, and nobody has seen that."""
    task = batch.tasks.get(f"{batch.id}-1-embed")
    return task is not None and task.state.terminal


@pytest.mark.parametrize("damaged", [None, b"\0", b"\xff", b"\x02"], ids=["gone", "zeros", "ones", "twos"])
def test_a_part_that_is_gone_or_damaged_costs_its_own_rows(hands: Hands, damaged: bytes | None) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(ROWS)])
    hands.until(lambda: embedded(hands.batch(batch_id)))
    parts = sorted(found.name for found in hands.storage.stored(f"anonymous/{batch_id}") if "/vectors." in found.name)
    assert len(parts) == 3
    size = len(hands.storage.read(parts[0]))
    hands.storage.delete(parts[0])
    if damaged is not None:
        hands.storage.write(parts[0], damaged * size)
    hands.work()
    batch = hands.batch(batch_id)
    done, lost = hands.lines(batch.output_file_id), hands.lines(batch.error_file_id)
    assert (batch.status, batch.counts) == (BatchStatus.COMPLETED, (ROWS, len(done), len(lost)))
    assert sorted(int(line["custom_id"]) for line in done + lost) == list(range(ROWS))
    assert 0 < len(lost) <= 4
    assert {(line["response"], line["error"]["code"]) for line in lost} == {(None, "batch_part_lost")}
    nothing_is_left(hands, batch)


def test_lines_that_are_gone_fail_the_batch(hands: Hands) -> None:
    batch_id = half_way(hands)
    hands.ledger.run(cancel(MODEL, f"{batch_id}-1-embed"))
    hands.storage.delete(f"anonymous/{batch_id}/")
    inputs = list(hands.storage.stored("anonymous"))
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, [fault.code for fault in batch.errors]) == (BatchStatus.FAILED, ["not_stored"])
    nothing_is_left(hands, batch)
    assert list(hands.storage.stored("anonymous")) == inputs, "nothing half-visible"
