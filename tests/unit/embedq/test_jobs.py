"""`embedq jobs`, and how other commands say why something is not done yet."""

from typing import Any

import pytest

from embedq.cli import main
from embedq.cli.ingest_report import describe as describe_ingestion
from embedq.cli.ingest_report import progress_details
from embedq.cli.jobs import describe
from embedq.ingestions import Ingestion
from tests.unit.embedq.scripted import Answer, Scripted, task

FAULT = {"code": "x", "message": "No."}
WHY = {"code": "in_line", "message": "Third in the bulk lane; 2 workers."}


def job(number: int = 1, **changed: Any) -> dict[str, Any]:
    counts = {"total": 2048, "completed": 0, "failed": 0}
    return {"id": f"task_{number}", "status": "queued", "counts": counts, "waiting": None} | changed


def test_a_job_in_a_line() -> None:
    assert describe(job()) == "task_1 queued 0/2,048"
    assert describe(job(waiting=WHY)) == "task_1 queued 0/2,048: Third in the bulk lane; 2 workers."
    counts = {"total": 2048, "completed": 40, "failed": 8}
    ended = job(status="failed", counts=counts, metadata={"title": "x", "name": "nightly"}, error=FAULT)
    assert describe(ended) == "task_1 failed 48/2,048, 8 failed, nightly: No."
    assert describe(job(metadata={"name": "\x1b]0;own\x07\n<b>"})) == "task_1 queued 0/2,048, ?]0;own??<b>"


def test_a_batch_says_the_first_fault_of_its_file() -> None:
    failed = job(id="batch_1", status="failed", metadata=None, errors={"object": "list", "data": [FAULT, {}]})
    assert describe(failed) == "batch_1 failed 0/2,048: No."
    assert describe(failed | {"errors": None}) == "batch_1 failed 0/2,048"


def test_jobs_are_read_page_by_page_up_to_the_limit(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere.answers = [
        Answer(200, {"data": [job(1)], "last_id": "task_1", "has_more": True}),
        Answer(200, {"data": [job(2), job(3)], "last_id": "task_3", "has_more": True}),
    ]
    assert main(["jobs", "--limit", "2", "--kind", "task,batch", "--url", elsewhere.url]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["task_1", "task_2"]
    assert [request.target for request in elsewhere.requests] == [
        "/v1/jobs?limit=2&kind=task%2Cbatch", "/v1/jobs?limit=2&kind=task%2Cbatch&after=task_1",
    ]  # fmt: skip


def test_waiting_says_first_why(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    queued = task("queued", total=2, completed=0)
    queued.body["waiting"] = {"code": "no_worker", "message": "No worker serves this model since 14:02 UTC."}
    elsewhere.answers = [queued, task(total=2, completed=2)]
    assert main(["wait", "task_1", "--url", elsewhere.url]) == 0
    assert "embedq: task_1: No worker serves this model since 14:02 UTC.\n" in capsys.readouterr().err


def test_an_ingestion_is_deleted(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere.answers = [Answer(200, {"id": "ing_1", "object": "ingestion", "deleted": True})]
    assert main(["ingest", "--delete", "ing_1", "--url", elsewhere.url]) == 0
    assert capsys.readouterr().out == "ing_1 deleted\n"
    assert [(r.method, r.target) for r in elsewhere.requests] == [("DELETE", "/v1/ingestions/ing_1")]


def ingestion(waiting: dict[str, Any] | None, *, embedded: int = 0) -> Ingestion:
    counts = {"total": 2, "completed": 0, "failed": 0, "cancelled": 0, "unchanged": 0}
    return Ingestion.from_json(
        {
            "id": "ing_1", "status": "in_progress", "file_counts": counts, "listing_complete": True,
            "chunks": {"total": 5, "embedded": embedded, "tokens": 50}, "waiting_for": "sink", "waiting": waiting,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("waiting", "embedded", "shown"),
    [
        (
            {"code": "sink_unavailable", "message": "The sink does not answer; next try in 30 s."},
            3,
            "The sink does not",
        ),
        (WHY, 0, "Third in the bulk lane; 2 workers"),
        (WHY, 3, None),
        ({"code": "working", "message": "Being worked on."}, 0, None),
        (None, 0, "waiting for the sink, which does not answer"),
    ],
    ids=["away", "in line at first", "in line again", "working", "an older server"],
)
def test_the_sentence_of_the_server_is_shown(waiting: dict[str, Any] | None, embedded: int, shown: str | None) -> None:
    of_status = describe_ingestion(ingestion(waiting, embedded=embedded))
    details = progress_details(ingestion(waiting, embedded=embedded))
    if shown is None:
        assert of_status == f"ing_1 in_progress: 0/2 documents, {embedded} of 5 chunks embedded"
        assert details.text == f"{embedded} of 5 chunks embedded"
    else:
        assert shown in of_status
        assert details.text.startswith(shown)
        assert details.eta_s is None
