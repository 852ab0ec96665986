"""Why something waits: which code and which sentence, from what is known of queues, tasks and records."""

import dataclasses
from typing import Any

import pytest

from api.waiting.why_waiting import Record, waiting_of
from tasks.item import Options
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.standing import QueueStanding, Standings, TaskStanding
from tasks.ledger.task import Lane, State, Task
from tasks.records.batches import Batch, BatchStatus, Stage
from tasks.records.ingestions import Counts, Ingestion, IngestionStatus, PageInFlight, PageStage, Setback

NOW_MS = 1_795_198_568_000
"""18:16:08 UTC of 20 November 2026."""
HOUR_MS = 3_600_000
SERVED = QueueStanding("m", 2, 4000.0, None)
DOCUMENTS_SERVED = QueueStanding(DOCUMENTS, 1, 1.0, None)
ALONE = TaskStanding(
    queue=SERVED, lane=Lane.BULK, state=State.QUEUED, cost=2500, lane_cost=2500, owner_cost=2500,
    owner_tasks=1, other_owners=0, online_cost=0,
)  # fmt: skip
"""A task that nothing is before."""


def task(state: State = State.QUEUED, **changed: Any) -> Task:
    made = Task(
        id="t", queue="m", lane=Lane.BULK, owner="ann", state=state, total=100, completed=0, failed=0,
        prompt_tokens=0, created_ms=NOW_MS, started_ms=None, finished_ms=None, deadline_ms=None, expires_ms=None,
        options=Options(), metadata={"name": "<script>"},
    )  # fmt: skip
    return dataclasses.replace(made, **changed)


def batch(status: BatchStatus = BatchStatus.VALIDATING, **changed: Any) -> Batch:
    made = Batch(
        id="b", owner="ann", status=status, input_file_id="f", completion_window="24h", created_ms=NOW_MS,
        expires_ms=NOW_MS, metadata=None, output_expires_s=None, model=None, total=0, completed=0, failed=0,
        tokens=None,
        output_file_id=None, error_file_id=None, errors=[], ends_as=BatchStatus.COMPLETED, times={}, stages={},
        now_ms=NOW_MS, losses={}, again_ms=0,
    )  # fmt: skip
    return dataclasses.replace(made, **changed)


def ingestion(status: IngestionStatus = IngestionStatus.IN_PROGRESS, **changed: Any) -> Ingestion:
    made = Ingestion(
        id="i", owner="ann", status=status, spec={"model": "m"}, created_ms=NOW_MS, now_ms=NOW_MS, counts=Counts(),
        listing_complete=False,
    )  # fmt: skip
    return dataclasses.replace(made, **changed)


def page(stage: PageStage, state: State | None, number: int = 0) -> dict[int, PageInFlight]:
    return {number: PageInFlight(number, stage, "manifest.0", 3, 100, state=state)}


def standings(*queues: QueueStanding, **tasks: TaskStanding) -> Standings:
    known = {queue.name: queue for queue in (SERVED, DOCUMENTS_SERVED, *queues)}
    return Standings(NOW_MS, known, {name.replace("_", "-"): standing for name, standing in tasks.items()})


def answer(record: Record, seen: Standings) -> tuple[str, str]:
    waiting = waiting_of(record, seen)
    assert waiting is not None
    return waiting.code, waiting.message


def stuck(queue: QueueStanding, code: str = "storage_unavailable") -> QueueStanding:
    return dataclasses.replace(queue, outage=(code, NOW_MS - HOUR_MS, ""))


def absent(name: str, since_ms: int | None = NOW_MS - HOUR_MS) -> QueueStanding:
    return QueueStanding(name, 0, None, since_ms)


def ahead(**changed: Any) -> TaskStanding:
    return dataclasses.replace(ALONE, **changed)


IN_LINE = "Waits for its turn in the bulk lane; less than 1 s of work before it."
BEFORE_12_MIN = {"lane_cost": 2_882_500, "owner_cost": 2500, "other_owners": 2000}


@pytest.mark.parametrize(
    ("standing", "message"),
    [
        (ahead(**BEFORE_12_MIN), "Waits for its turn in the bulk lane; about 12 min of work before it."),
        (ALONE, IN_LINE),
        (
            ahead(lane_cost=10_000_000_000, other_owners=10**6),
            "Waits for its turn in the bulk lane; about 7 d of work before it.",
        ),
        (ahead(queue=QueueStanding("m", 1, None, None)), "Waits for its turn in the bulk lane."),
        (ahead(state=State.IN_PROGRESS), "Being worked on; less than 1 s left."),
        (ahead(state=State.IN_PROGRESS, cost=5000), "Being worked on; about 1 s left."),
        (
            ahead(state=State.IN_PROGRESS, lane_cost=40_000_000, other_owners=10**5),
            "Being worked on; about 3 h left.",
        ),
    ],
)  # fmt: skip
def test_the_sentence_of_a_task_that_is_served(standing: TaskStanding, message: str) -> None:
    seen = standings(standing.queue, t=standing)
    assert answer(task(), seen) == ("working" if standing.state is State.IN_PROGRESS else "in_line", message)


def test_the_numbers_of_a_task_in_line() -> None:
    waiting = waiting_of(task(), standings(t=ahead(**BEFORE_12_MIN)))
    assert waiting is not None
    assert waiting.model_dump() == {
        "code": "in_line",
        "message": "Waits for its turn in the bulk lane; about 12 min of work before it.",
        "seconds": 720, "since": None,
    }  # fmt: skip


@pytest.mark.parametrize("state", [State.QUEUED, State.IN_PROGRESS])
def test_a_worker_that_dies_is_told_for_a_minute(state: State) -> None:
    dying = ahead(state=state, died_ms=NOW_MS - 5000)
    assert answer(task(), standings(t=dying)) == ("workers_died", "Its worker died; it is tried again.")
    long_ago = ahead(state=state, died_ms=NOW_MS - HOUR_MS)
    assert answer(task(), standings(t=long_ago))[0] in {"in_line", "working"}


@pytest.mark.parametrize(
    ("since_ms", "message"),
    [
        (NOW_MS - 30 * HOUR_MS, "No worker serves this model since 2026-11-19 12:16 UTC."),
        (None, "No worker serves this model."),
    ],
)
def test_without_a_worker_nothing_else_matters(since_ms: int | None, message: str) -> None:
    seen = standings(absent("m", since_ms), t=ahead(queue=absent("m"), state=State.IN_PROGRESS))
    assert answer(task(State.IN_PROGRESS), seen) == ("no_worker", message)
    waiting = waiting_of(task(), seen)
    assert waiting is not None
    assert waiting.since == (since_ms and since_ms // 1000)


def test_what_has_ended_waits_for_nothing() -> None:
    for record in (task(State.COMPLETED), batch(BatchStatus.FAILED), ingestion(IngestionStatus.CANCELLED)):
        assert waiting_of(record, Standings()) is None


IN_DOCUMENTS = ahead(queue=DOCUMENTS_SERVED)
STORAGE = Setback(3, "storage", NOW_MS + 29_001, NOW_MS - HOUR_MS)


@pytest.mark.parametrize(
    ("record", "seen", "code", "message"),
    [
        (
            batch(), standings(absent(DOCUMENTS)),
            "no_documents_worker", "No documents worker runs since 2026-11-20 17:16 UTC.",
        ),
        (batch(), standings(), "working", "Being worked on."),
        (
            batch(stages={Stage.VALIDATE: State.QUEUED}), standings(b_validate=IN_DOCUMENTS),
            "in_line", "Waits for its turn.",
        ),
        (
            batch(stages={Stage.VALIDATE: State.COMPLETED}), standings(),
            "no_room", "Its lines are checked; they wait for room in the queue.",
        ),
        (
            batch(again_ms=NOW_MS + 1500), standings(),
            "workers_died", "Its worker died; it is tried again.",
        ),
        (
            batch(BatchStatus.IN_PROGRESS, model="m", stages={Stage.EMBED: State.QUEUED}), standings(b_embed=ALONE),
            "in_line", IN_LINE,
        ),
        (
            batch(BatchStatus.IN_PROGRESS, model="m", stages={Stage.EMBED: State.IN_PROGRESS}),
            standings(stuck(SERVED), b_embed=ALONE),
            "storage_unavailable", "The server's storage does not answer since 2026-11-20 17:16 UTC.",
        ),
        (
            batch(stages={Stage.VALIDATE: State.QUEUED}), standings(stuck(DOCUMENTS_SERVED, "disk_full")),
            "disk_full", "The server's storage is full since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED) | page(PageStage.PARSE, State.IN_PROGRESS, 1)),
            standings(stuck(SERVED), i_0_embed=ALONE),
            "storage_unavailable", "The server's storage does not answer since 2026-11-20 17:16 UTC.",
        ),
        (
            task(), standings(stuck(SERVED), t=ALONE),
            "in_line", IN_LINE,
        ),
        (
            batch(BatchStatus.IN_PROGRESS, model="m", stages={Stage.EMBED: State.IN_PROGRESS}),
            standings(absent("m"), absent(DOCUMENTS)),
            "no_worker", "No worker serves this model since 2026-11-20 17:16 UTC.",
        ),
        (
            batch(BatchStatus.FINALIZING, model="m", stages={Stage.EMBED: State.COMPLETED}), standings(absent("m")),
            "working", "Being worked on.",
        ),
        (
            ingestion(IngestionStatus.QUEUED), standings(absent(DOCUMENTS, None)),
            "no_documents_worker", "No documents worker runs.",
        ),
        (
            ingestion(IngestionStatus.QUEUED, waiting_for="model"), standings(absent("m")),
            "no_worker", "No worker serves this model since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(IngestionStatus.QUEUED, waiting_for="model"), standings(),
            "model_not_ready", "The files of the model are not in the storage; a worker that starts puts them there.",
        ),
        (
            ingestion(setbacks={"list": STORAGE}), standings(),
            "storage_unavailable", "The server's storage does not answer since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(setbacks={"load": dataclasses.replace(STORAGE, what="sink", until_ms=NOW_MS - 1, since_ms=None)}),
            standings(), "sink_unavailable", "The sink does not answer.",
        ),
        (
            ingestion(setbacks={"parse": dataclasses.replace(STORAGE, what="disk_full")}), standings(),
            "disk_full", "The server's storage is full since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(setbacks={"load": dataclasses.replace(STORAGE, what="worker")}), standings(),
            "workers_died", "Its worker died; it is tried again.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED)), standings(absent("m")),
            "no_worker", "No worker serves this model since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED) | page(PageStage.PARSE, State.IN_PROGRESS, 1)),
            standings(i_0_embed=ALONE, i_1_parse=dataclasses.replace(IN_DOCUMENTS, state=State.IN_PROGRESS)),
            "working", "Being worked on.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED)), standings(i_0_embed=ALONE),
            "in_line", IN_LINE,
        ),
        (
            ingestion(list_state=State.QUEUED), standings(i_list_0=IN_DOCUMENTS),
            "in_line", "Waits for its turn.",
        ),
        (ingestion(), standings(), "working", "Being worked on."),
    ],
)  # fmt: skip
def test_what_a_batch_or_an_ingestion_waits_for(record: Record, seen: Standings, code: str, message: str) -> None:
    assert answer(record, seen) == (code, message)


def test_no_sentence_repeats_what_the_caller_has_sent() -> None:
    waiting = waiting_of(task(), standings(t=ALONE))
    assert waiting is not None
    assert "script" not in str(waiting)
