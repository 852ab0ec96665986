"""What an operator sees of a whole service: each request in the logs, and traces from it to its vectors."""

import json
from typing import Any

from tasks.records.api_keys import environment_owner
from tests.collector import ReceivedSpan
from tests.integration.observed.conftest import KEY, NAME, TEXT, Observed, new_trace
from tests.processes import Process, wait_until
from worker_config.settings import DEFAULT_MODEL

ALWAYS = {"time", "level", "logger", "message", "role", "pid"}


def lines(process: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.log().splitlines()]


def access(observed: Observed, request_id: str) -> dict[str, Any]:
    """The line of the answer to a request."""

    def found() -> dict[str, Any] | None:
        ours = [line for line in lines(observed.api) if line.get("request_id") == request_id]
        return next((line for line in ours if line["logger"] == "api.access"), None)

    return wait_until(found, message=f"no line of {request_id}")


WHOLE = ("POST /v1/embeddings", "submit", "claim", "encode", "commit", "read", "answer")


def named(spans: list[ReceivedSpan], name: str) -> ReceivedSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def test_one_trace_leads_from_the_request_to_the_answer(observed: Observed) -> None:
    trace_id, headers = new_trace()
    assert observed.client.post("/v1/embeddings", json={"input": [TEXT, "two"]}, headers=headers).status_code == 200
    spans = observed.trace(trace_id, *WHOLE)
    request, submit, claim = (named(spans, name) for name in WHOLE[:3])
    assert request.parent_id == headers["traceparent"].split("-")[2]
    assert {span.name: span.parent_id for span in spans if span is not request} == {
        "submit": request.span_id,
        "read": request.span_id,
        "answer": request.span_id,
        "claim": submit.span_id,
        "encode": claim.span_id,
        "commit": claim.span_id,
    }
    by_worker = {span.name for span in spans if span.service == "embedq-worker"}
    assert by_worker == {"claim", "encode", "commit"}
    assert not any(span.failed for span in spans)
    assert {name: value for name, value in request.attributes.items() if name.startswith(("http.", "embedq."))} == {
        "http.request.method": "POST",
        "http.route": "/v1/embeddings",
        "http.response.status_code": 200,
        "embedq.key": NAME,
        "embedq.owner": environment_owner(NAME),
    }
    assert claim.attributes["messaging.message.id"] == submit.attributes["messaging.message.id"]
    encoded = named(spans, "encode").attributes
    assert (encoded["embedq.texts"], encoded["embedq.forward_passes"]) == (2, 1)
    assert encoded["gen_ai.usage.input_tokens"] > 0


def test_a_task_knows_its_trace_only_when_the_request_is_sampled(observed: Observed) -> None:
    for headers in ({}, new_trace(sampled=False)[1], {"traceparent": "00-nonsense"}):
        task_id = observed.client.post("/v1/tasks", json={"input": [TEXT]}, headers=headers).json()["id"]
        assert observed.stored(task_id, "state") is not None
        assert observed.stored(task_id, "trace") is None
    trace_id, headers = new_trace()
    task_id = observed.client.post("/v1/tasks", json={"input": [TEXT]}, headers=headers).json()["id"]
    submit = named(observed.trace(trace_id, "submit"), "submit")
    assert observed.stored(task_id, "trace") == f"00-{trace_id}-{submit.span_id}-01"


def test_later_requests_about_a_task_are_linked_to_it(observed: Observed) -> None:
    trace_id, headers = new_trace()
    key = {"idempotency-key": "once"}
    task_id = observed.client.post("/v1/tasks", json={"input": ["once"]}, headers=headers | key).json()["id"]
    submit = named(observed.trace(trace_id, "submit"), "submit")
    again, headers = new_trace()
    observed.client.post("/v1/tasks", json={"input": ["once"]}, headers=headers | key)
    assert named(observed.trace(again, "POST /v1/tasks"), "POST /v1/tasks").links == [submit.span_id]
    later, headers = new_trace()
    observed.client.get(f"/v1/tasks/{task_id}", headers=headers, params={"wait": 10})
    assert named(observed.trace(later, "GET /v1/tasks/{task_id}"), "GET /v1/tasks/{task_id}").links == [submit.span_id]


def test_both_attempts_are_seen_when_a_worker_dies(observed: Observed) -> None:
    trace_id, headers = new_trace()
    texts = [" ".join([f"{number}"] * 200) for number in range(10)]  # seconds of work, so that it can be caught
    task_id = observed.client.post("/v1/tasks", json={"input": texts}, headers=headers).json()["id"]
    observed.trace(trace_id, "claim")
    observed.worker.kill_child()
    wait_until(lambda: observed.client.get(f"/v1/tasks/{task_id}").json()["status"] == "completed")

    def whole() -> list[ReceivedSpan] | None:
        spans = observed.collector.of(trace_id)
        pieces = sum(span.attributes["embedq.pieces"] for span in spans if span.name == "commit")
        return spans if pieces == len(texts) else None

    spans = wait_until(whole, message=f"commits in {[span.name for span in observed.collector.of(trace_id)]}")
    attempts = {span.span_id: span.attributes["embedq.attempt"] for span in spans if span.name == "claim"}
    committed = {span.parent_id for span in spans if span.name == "commit"}
    assert committed <= {span.parent_id for span in spans if span.name == "encode"}
    assert 2 in {attempts[claim] for claim in committed}
    assert 1 in {attempts[claim] for claim in attempts.keys() - committed}  # of the worker that died


def test_the_jobs_of_a_batch_are_below_the_request_that_created_it(observed: Observed) -> None:
    body = {"input": "a line", "model": DEFAULT_MODEL}
    lines = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": body}).encode()
    upload = {"file": ("lines.jsonl", lines)}
    file_id = observed.client.post("/v1/files", data={"purpose": "batch"}, files=upload).json()["id"]
    batch = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    trace_id, headers = new_trace()
    batch_id = observed.client.post("/v1/batches", json=batch, headers=headers).json()["id"]
    by_worker = 3 * ("claim", "commit") + 2 * ("job",) + ("encode",)
    spans = observed.trace(trace_id, "POST /v1/batches", *by_worker)
    request = named(spans, "POST /v1/batches")
    claims = [span for span in spans if span.name == "claim"]
    assert {span.parent_id for span in claims} == {request.span_id}
    tasks = [f"{batch_id}-1-{stage}" for stage in ("parse", "embed", "load")]
    assert [span.attributes["messaging.message.id"] for span in claims] == tasks
    jobs = [span.attributes["embedq.job.kind"] for span in spans if span.name == "job"]
    assert (jobs, named(spans, "encode").attributes["embedq.texts"]) == (["batch parse", "batch load"], 1)


def test_the_first_jobs_of_an_ingestion_are_below_the_request_that_created_it(observed: Observed) -> None:
    trace_id, headers = new_trace()
    body = {"source": {"documents": [{"id": "1", "text": "a document"}]}, "sink": {"type": "dataset"}}
    assert observed.client.post("/v1/ingestions", json=body, headers=headers).status_code == 202

    def done() -> bool:
        spans = observed.collector.of(trace_id)  # of three processes, which send when they come to it
        jobs = {span.attributes.get("embedq.job.kind") for span in spans}
        names = {span.name for span in spans}
        if not names >= {"encode", "commit", "POST /v1/ingestions"}:
            return False
        return jobs >= {"ingestion list", "ingestion parse", "ingestion load"}

    wait_until(done)


def test_a_text_that_is_refused_has_a_whole_trace(observed: Observed) -> None:
    trace_id, headers = new_trace()
    assert observed.client.post("/v1/embeddings", json={"input": f"{TEXT} !!nan!!"}, headers=headers).status_code == 422
    request = named(observed.trace(trace_id, *WHOLE[:-1]), "POST /v1/embeddings")
    assert (request.failed, request.attributes["http.response.status_code"]) == (False, 422)


def test_no_span_has_a_text_or_a_key(observed: Observed) -> None:
    trace_id, headers = new_trace()
    observed.client.get(f"/v1/{TEXT}", headers=headers, params={"q": TEXT})
    assert named(observed.trace(trace_id, "GET unmatched"), "GET unmatched").attributes["http.route"] == "unmatched"
    trace_id, headers = new_trace()
    observed.client.post("/v1/embeddings", json={"input": f"{TEXT} again", "user": TEXT}, headers=headers)
    observed.trace(trace_id, *WHOLE)
    for secret in (TEXT, KEY):
        assert secret not in str(observed.collector.spans)


def test_a_request_is_one_line_with_its_task_and_its_owner(observed: Observed) -> None:
    answer = observed.client.post("/v1/embeddings", json={"input": TEXT}, headers={"x-request-id": "req-1"})
    assert answer.status_code == 200
    line = access(observed, "req-1")
    assert line.pop("seconds") > 0
    (task_id,) = line.pop("task_ids")
    assert task_id.startswith("task_")
    assert line["bytes"] == len(answer.content)
    told = {name: line[name] for name in ("method", "route", "status", "role")}
    assert told == {"method": "POST", "route": "/v1/embeddings", "status": 200, "role": "api"}
    own = observed.client.get("/v1/key").json()
    assert (line["key"], line["owner"]) == (own["name"], own["owner"]) == (NAME, environment_owner(NAME))
    observed.client.get("/health/live", headers={"x-request-id": "req-1b"})
    line = access(observed, "req-1b")
    assert (line["key"], line["owner"]) == (None, None)


def test_routes_are_templates_and_what_a_client_writes_is_left_out(observed: Observed) -> None:
    task_id = observed.client.post("/v1/tasks", json={"input": [TEXT]}).json()["id"]
    headers = {"x-request-id": "req-2"}
    observed.client.get(f"/v1/tasks/{task_id}", headers=headers, params={"x": TEXT})
    line = access(observed, "req-2")
    assert (line["route"], line["task_ids"]) == ("/v1/tasks/{task_id}", [task_id])
    observed.client.get(f"/v1/{TEXT}", headers={"x-request-id": "req-3", "authorization": f"Bearer wrong-{KEY}"})
    assert access(observed, "req-3")["route"] == "unmatched"
    observed.client.get(f"/v1/tasks/{TEXT}", headers={"x-request-id": "req-4"})
    assert "task_ids" not in access(observed, "req-4")


def test_a_worker_names_itself_and_the_tasks_of_a_claim_that_fails(observed: Observed) -> None:
    refused = observed.client.post(
        "/v1/embeddings", json={"input": f"{TEXT} !!fail!!"}, headers={"x-request-id": "req-5"}
    )
    assert refused.status_code == 422
    (task_id,) = access(observed, "req-5")["task_ids"]
    about = wait_until(lambda: [line for line in lines(observed.worker) if task_id in line.get("task_ids", ())])
    assert all(line["worker"] for line in about)
    assert about[0]["role"] == "worker"


def test_every_line_is_an_object_and_none_has_a_text_or_a_key(observed: Observed) -> None:
    body = {"sources": [], "input": TEXT}
    for path in ("/v1/embeddings", "/v1/tasks", "/v1/ingestions", "/v1/batches"):
        observed.client.post(path, json=body, params={"q": TEXT}, headers={"x-request-id": f"a text: {TEXT}"})
    observed.client.post("/v1/embeddings", content=TEXT.encode(), headers={"x-request-id": "req-6"})
    access(observed, "req-6")
    for process in observed.processes:
        assert all(line.keys() >= ALWAYS for line in lines(process))
        assert lines(process), process.name
        for secret in (TEXT, KEY):
            assert secret not in process.log()
