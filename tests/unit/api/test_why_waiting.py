"""Why something waits: which code and which sentence, from what is known of queues, tasks and records."""

import dataclasses
from typing import Any

import pytest

from api.served_models import ServedModels
from api.waiting.why_waiting import Record, Seen, waiting_of
from tasks.item import Options
from tasks.ledger.heartbeat import LoadingWorker
from tasks.ledger.overview import Account, Queue
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Lane, State, Task
from tasks.records.batches import Batch, BatchStatus, Stage
from tasks.records.ingestions import Counts, Ingestion, IngestionStatus, PageInFlight, PageStage, Setback
from tests.ledger_builders import a_worker
from worker_config.settings import load_settings

NOW_MS = 1_795_198_568_000
"""18:16:08 UTC of 20 November 2026."""
HOUR_MS = 3_600_000
SERVED = Queue("m", workers=(a_worker(),), rate=4000.0, backlog_cost={Lane.ONLINE: 0, Lane.BULK: 2500})
DOCUMENTS_SERVED = Queue(DOCUMENTS, workers=(a_worker(),), rate=1.0)


def task(state: State = State.QUEUED, **changed: Any) -> Task:
    made = Task(
        id="t", queue="m", lane=Lane.BULK, owner="ann", state=state, total=100, completed=0, failed=0,
        prompt_tokens=0, created_ms=NOW_MS, started_ms=None, finished_ms=None, deadline_ms=None, expires_ms=None,
        options=Options(), metadata={"name": "<script>"}, cost=2500,
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


def seen(*queues: Queue, account: dict[str, int] | None = None, **tasks: Task) -> Seen:
    served = ServedModels(load_settings(served_name="m"))
    served.update({queue.name: queue for queue in (SERVED, DOCUMENTS_SERVED, *queues)})
    found = {name.replace("_", "-"): one for name, one in tasks.items()}
    return Seen(served, found, Account({f"{name}:m:bulk": n for name, n in (account or {}).items()}), NOW_MS)


def answer(record: Record, known: Seen) -> tuple[str, str]:
    waiting = waiting_of(record, known)
    assert waiting is not None
    return waiting.code, waiting.message


def stuck(queue: Queue, code: str = "storage_unavailable") -> Queue:
    return dataclasses.replace(
        queue, workers=(a_worker(storage_error=code, storage_error_since=(NOW_MS - HOUR_MS) / 1000),)
    )


def absent(name: str, since_ms: int | None = NOW_MS - HOUR_MS) -> Queue:
    return Queue(name, absent_ms=since_ms)


def busy(cost: int, owners: int) -> Queue:
    return dataclasses.replace(
        SERVED, backlog_cost={Lane.ONLINE: 0, Lane.BULK: cost}, owners={Lane.ONLINE: 0, Lane.BULK: owners}
    )


IN_LINE = "Waits for its turn in the bulk lane; less than 1 s of work before it."
BUSY = busy(2_882_500, 2001)
WORKED_ON = task(State.IN_PROGRESS)
MINE = {"cost": 2500, "open": 1}


@pytest.mark.parametrize(
    ("one", "queue", "message"),
    [
        (task(), BUSY, "Waits for its turn in the bulk lane; about 12 min of work before it."),
        (task(), SERVED, IN_LINE),
        (task(), busy(10_000_000_000, 10**6 + 1), "Waits for its turn in the bulk lane; about 7 d of work before it."),
        (task(), dataclasses.replace(SERVED, rate=None), "Waits for its turn in the bulk lane."),
        (WORKED_ON, SERVED, "Being worked on; less than 1 s left."),
        (task(State.IN_PROGRESS, cost=5000), SERVED, "Being worked on; about 1 s left."),
        (WORKED_ON, busy(40_000_000, 10**5 + 1), "Being worked on; about 3 h left."),
    ],
)
def test_the_sentence_of_a_task_that_is_served(one: Task, queue: Queue, message: str) -> None:
    code = "working" if one.state is State.IN_PROGRESS else "in_line"
    assert answer(one, seen(queue, account=MINE, t=one)) == (code, message)


def test_the_numbers_of_a_task_in_line() -> None:
    waiting = waiting_of(task(), seen(BUSY, account=MINE, t=task()))
    assert waiting is not None
    assert waiting.model_dump() == {
        "code": "in_line",
        "message": "Waits for its turn in the bulk lane; about 12 min of work before it.",
        "seconds": 720, "since": None,
    }  # fmt: skip


@pytest.mark.parametrize("state", [State.QUEUED, State.IN_PROGRESS])
@pytest.mark.parametrize(("deaths", "often"), [(1, ""), (3, " 3 times")])
def test_a_worker_that_dies_is_told_for_a_minute(state: State, deaths: int, often: str) -> None:
    dying = task(state, deaths=deaths, died_ms=NOW_MS - 5000)
    assert answer(dying, seen(t=dying)) == ("workers_died", f"Its worker died or failed{often}; it is tried again.")
    long_ago = task(state, deaths=deaths, died_ms=NOW_MS - HOUR_MS)
    assert answer(long_ago, seen(t=long_ago))[0] in {"in_line", "working"}


@pytest.mark.parametrize(
    ("since_ms", "message"),
    [
        (NOW_MS - 30 * HOUR_MS, "No worker serves this model since 2026-11-19 12:16 UTC."),
        (None, "No worker serves this model."),
    ],
)
def test_without_a_worker_nothing_else_matters(since_ms: int | None, message: str) -> None:
    waiting = waiting_of(WORKED_ON, seen(absent("m", since_ms), t=WORKED_ON))
    assert waiting is not None
    assert (waiting.code, waiting.message) == ("no_worker", message)
    assert waiting.since == (since_ms and since_ms // 1000)


def test_a_worker_that_loads_is_told() -> None:
    loading = LoadingWorker("w", "org/m", "the hub", since=(NOW_MS - HOUR_MS) / 1000)
    queue = dataclasses.replace(absent("m"), loading=(loading,))
    assert answer(task(), seen(queue, t=task())) == (
        "model_loading",
        "A worker loads the model since 2026-11-20 17:16 UTC.",
    )


def test_what_has_ended_waits_for_nothing() -> None:
    for record in (task(State.COMPLETED), batch(BatchStatus.FAILED), ingestion(IngestionStatus.CANCELLED)):
        assert waiting_of(record, seen()) is None


IN_DOCUMENTS = task(queue=DOCUMENTS)
STORAGE = Setback(3, "storage", NOW_MS + 29_001, NOW_MS - HOUR_MS)


@pytest.mark.parametrize(
    ("record", "known", "code", "message"),
    [
        (
            batch(), seen(absent(DOCUMENTS)),
            "no_documents_worker", "No documents worker runs since 2026-11-20 17:16 UTC.",
        ),
        (batch(), seen(), "working", "Being worked on."),
        (
            batch(stages={Stage.VALIDATE: State.QUEUED}), seen(b_validate=IN_DOCUMENTS),
            "in_line", "Waits for its turn.",
        ),
        (
            batch(again_ms=NOW_MS + 1500), seen(),
            "workers_died", "Its worker died or failed; it is tried again.",
        ),
        (
            batch(BatchStatus.IN_PROGRESS, model="m", stages={Stage.EMBED: State.QUEUED}), seen(b_embed=task()),
            "in_line", IN_LINE,
        ),
        (
            batch(BatchStatus.IN_PROGRESS, model="m", stages={Stage.EMBED: State.IN_PROGRESS}),
            seen(stuck(SERVED), b_embed=task()),
            "storage_unavailable", "The server's storage does not answer since 2026-11-20 17:16 UTC.",
        ),
        (
            batch(stages={Stage.VALIDATE: State.QUEUED}), seen(stuck(DOCUMENTS_SERVED, "disk_full")),
            "disk_full", "The server's storage is full since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED) | page(PageStage.PARSE, State.IN_PROGRESS, 1)),
            seen(stuck(SERVED), i_0_embed=task()),
            "storage_unavailable", "The server's storage does not answer since 2026-11-20 17:16 UTC.",
        ),
        (
            task(), seen(stuck(SERVED), t=task()),
            "in_line", IN_LINE,
        ),
        (
            batch(BatchStatus.IN_PROGRESS, model="m", stages={Stage.EMBED: State.IN_PROGRESS}),
            seen(absent("m"), absent(DOCUMENTS)),
            "no_worker", "No worker serves this model since 2026-11-20 17:16 UTC.",
        ),
        (
            batch(BatchStatus.FINALIZING, model="m", stages={Stage.EMBED: State.COMPLETED}), seen(absent("m")),
            "working", "Being worked on.",
        ),
        (
            ingestion(IngestionStatus.QUEUED), seen(absent(DOCUMENTS, None)),
            "no_documents_worker", "No documents worker runs.",
        ),
        (
            ingestion(IngestionStatus.QUEUED, waiting_for="model"), seen(absent("m")),
            "no_worker", "No worker serves this model since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(IngestionStatus.QUEUED, waiting_for="model"), seen(),
            "model_not_ready", "The files of the model are not in the storage; a worker that starts puts them there.",
        ),
        (
            ingestion(setbacks={"list": STORAGE}), seen(),
            "storage_unavailable", "The server's storage does not answer since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(setbacks={"load": dataclasses.replace(STORAGE, what="sink", until_ms=NOW_MS - 1, since_ms=None)}),
            seen(), "sink_unavailable", "The sink does not answer.",
        ),
        (
            ingestion(setbacks={"parse": dataclasses.replace(STORAGE, what="disk_full")}), seen(),
            "disk_full", "The server's storage is full since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(setbacks={"load": dataclasses.replace(STORAGE, what="worker")}), seen(),
            "workers_died", "Its worker died or failed; it is tried again.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED)), seen(absent("m")),
            "no_worker", "No worker serves this model since 2026-11-20 17:16 UTC.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED) | page(PageStage.PARSE, State.IN_PROGRESS, 1)),
            seen(i_0_embed=task(), i_1_parse=task(State.IN_PROGRESS, queue=DOCUMENTS)),
            "working", "Being worked on.",
        ),
        (
            ingestion(pages=page(PageStage.EMBED, State.QUEUED)), seen(i_0_embed=task()),
            "in_line", IN_LINE,
        ),
        (
            ingestion(list_state=State.QUEUED), seen(i_list_0=IN_DOCUMENTS),
            "in_line", "Waits for its turn.",
        ),
        (ingestion(), seen(), "working", "Being worked on."),
    ],
)  # fmt: skip
def test_what_a_batch_or_an_ingestion_waits_for(record: Record, known: Seen, code: str, message: str) -> None:
    assert answer(record, known) == (code, message)


def test_no_sentence_repeats_what_the_caller_has_sent() -> None:
    waiting = waiting_of(task(), seen(t=task()))
    assert waiting is not None
    assert "script" not in str(waiting)
