"""Documents workers that die in the jobs of a batch, and parts that are gone: what the model has done is kept."""

from collections.abc import Callable

import pytest

from tasks.ledger.cancel import cancel
from tasks.records.batches import Batch, BatchStatus, Stage
from tests.integration.batches.hands import HOUR_MS, MODEL, Hands, half_way, nothing_is_left, request

DEATHS = 4
"""Of a worker in one and the same job, until the ledger gives the job up."""
JOBS = {Stage.VALIDATE: "validate_batch", Stage.ASSEMBLE: "assemble_batch"}
ROWS = 10


def dying(hands: Hands, batch_id: str, stage: Stage) -> Callable[[], None]:
    """Steps and works; each call is later than all pauses."""
    hands.deadly_jobs.add(f"{JOBS[stage]} {batch_id}")

    def go_on() -> None:
        hands.ledger.clock_offset_ms += 60_000
        hands.step()
        hands.work_documents()
        hands.work_model()

    return go_on


@pytest.mark.parametrize("stage", JOBS)
def test_a_job_whose_workers_were_killed_is_tried_again_later(hands: Hands, stage: Stage) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(ROWS)])
    job, go_on = f"{JOBS[stage]} {batch_id}", dying(hands, batch_id, stage)
    while hands.ran[job] < DEATHS:
        go_on()
    hands.deadly_jobs.clear()
    finalizing = hands.batch(batch_id).times.get(BatchStatus.FINALIZING)
    for _ in range(3):
        hands.step()
        hands.work_documents()
    assert hands.ran[job] == DEATHS, "not at once"
    hands.ledger.clock_offset_ms += 1000
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, batch.completed, batch.losses) == (BatchStatus.COMPLETED, ROWS, {stage: 1})
    assert finalizing in {None, batch.times[BatchStatus.FINALIZING]}, "the state was reached before"
    assert len(hands.lines(batch.output_file_id)) == ROWS
    nothing_is_left(hands, batch)


@pytest.mark.parametrize("stage", JOBS)
def test_a_job_is_tried_again_soon_though_the_clock_of_redis_has_gone_back(hands: Hands, stage: Stage) -> None:
    batch_id = hands.create([request("a", "x")])
    go_on = dying(hands, batch_id, stage)
    while not hands.batch(batch_id).losses:
        go_on()
    hands.deadly_jobs.clear()
    hands.ledger.clock_offset_ms -= HOUR_MS
    hands.work()
    assert hands.batch(batch_id).status is BatchStatus.COMPLETED


@pytest.mark.parametrize("stage", JOBS)
def test_a_job_that_kills_every_worker_fails_its_batch(hands: Hands, stage: Stage) -> None:
    batch_id = hands.create([request("a", "x")])
    go_on = dying(hands, batch_id, stage)
    for _ in range(30):
        go_on()
    batch = hands.batch(batch_id)
    assert hands.ran[f"{JOBS[stage]} {batch_id}"] == 4 * DEATHS
    assert (batch.status, [fault.code for fault in batch.errors]) == (BatchStatus.FAILED, ["worker_lost"])


@pytest.mark.parametrize("damaged", [None, b"\0", b"\xff", b"\x02"], ids=["gone", "zeros", "ones", "twos"])
def test_a_part_that_is_gone_or_damaged_costs_its_own_rows(hands: Hands, damaged: bytes | None) -> None:
    batch_id = hands.create([request(f"{n}", f"text {n}") for n in range(ROWS)])
    embedded: Callable[[Batch], bool] = lambda batch: batch.stages[Stage.EMBED].terminal  # noqa: E731 - read twice
    hands.until(lambda: Stage.EMBED in hands.batch(batch_id).stages and embedded(hands.batch(batch_id)))
    parts = sorted(found.name for found in hands.storage.stored(f"batches/{batch_id}/parts"))
    assert len(parts) == 3
    size = len(hands.storage.read(parts[0]))
    hands.storage.delete(parts[0])
    if damaged is not None:
        hands.storage.write(parts[0], damaged * size)
    hands.work()
    batch = hands.batch(batch_id)
    done, lost = hands.lines(batch.output_file_id), hands.lines(batch.error_file_id)
    assert (batch.status, batch.completed, batch.failed) == (BatchStatus.COMPLETED, len(done), len(lost))
    assert sorted(int(line["custom_id"]) for line in done + lost) == list(range(ROWS))
    assert 0 < len(lost) <= 4
    assert {(line["response"], line["error"]["code"]) for line in lost} == {(None, "batch_part_lost")}
    nothing_is_left(hands, batch)


def test_lines_that_are_gone_fail_the_batch(hands: Hands) -> None:
    batch_id = half_way(hands)
    hands.ledger.run(cancel(MODEL, f"{batch_id}-embed"))
    inputs = list(hands.storage.stored("files"))
    hands.storage.delete(f"batches/{batch_id}/")
    hands.work()
    batch = hands.batch(batch_id)
    assert (batch.status, [fault.code for fault in batch.errors]) == (BatchStatus.FAILED, ["not_stored"])
    assert list(hands.storage.stored("files")) == inputs, "nothing half-visible"
    nothing_is_left(hands, batch)
