"""What an operator sees of a whole service: each request in the logs, and traces from it to its vectors."""

import json
from typing import Any

from tasks.records.api_keys import environment_owner
from tests.integration.observed.conftest import KEY, NAME, TEXT, Observed, Span, new_trace
from tests.processes import Process, wait_until
from worker_config.settings import DEFAULT_MODEL

ALWAYS = {"time", "level", "logger", "message", "role", "pid"}
WHOLE = ("POST /v1/embeddings", "submit", "claim", "encode", "commit", "read", "answer")


def lines(process: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.log().splitlines()]


def access(observed: Observed, request_id: str) -> dict[str, Any]:
    """The line of the answer to a request."""

    def found() -> dict[str, Any] | None:
        ours = [line for line in lines(observed.api) if line.get("request_id") == request_id]
        return next((line for line in ours if line["logger"] == "api.access"), None)

    return wait_until(found, message=f"no line of {request_id}")


def named(spans: list[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


def test_one_trace_leads_from_the_request_to_the_answer(observed: Observed) -> None:
    trace_id, headers = new_trace()
    assert observed.client.post("/v1/embeddings", json={"input": [TEXT, "two"]}, headers=headers).status_code == 200
    spans = observed.collector.trace(trace_id, *WHOLE)
    request, submit, claim = (named(spans, name) for name in WHOLE[:3])
    assert request.parent_id == headers["traceparent"].split("-")[2]
    assert {span.name: span.parent_id for span in spans if span is not request} == {
        **dict.fromkeys(("submit", "read", "answer"), request.span_id),
        "claim": submit.span_id,
        **dict.fromkeys(("encode", "commit"), claim.span_id),
    }
    assert {span.name for span in spans if span.service == "embedq-worker"} == {"claim", "encode", "commit"}
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


def test_later_requests_about_a_task_are_linked_to_it(observed: Observed) -> None:
    client, key, body = observed.client, {"idempotency-key": "once"}, {"input": ["once"]}
    trace_id, headers = new_trace()
    task_id = client.post("/v1/tasks", json=body, headers=headers | key).json()["id"]
    submit = named(observed.collector.trace(trace_id, "submit"), "submit")
    again, headers = new_trace()
    client.post("/v1/tasks", json=body, headers=headers | key)
    later, headers = new_trace()
    client.get(f"/v1/tasks/{task_id}", headers=headers, params={"wait": 10})
    for trace_id, name in ((again, "POST /v1/tasks"), (later, "GET /v1/tasks/{task_id}")):
        assert named(observed.collector.trace(trace_id, name), name).links == [submit.span_id]


def test_the_stages_of_a_batch_and_an_ingestion_are_below_the_request_that_created_them(observed: Observed) -> None:
    client = observed.client
    body = {"input": "a line", "model": DEFAULT_MODEL}
    line = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": body}).encode()
    upload = {"file": ("lines.jsonl", line)}
    file_id = client.post("/v1/files", data={"purpose": "batch"}, files=upload).json()["id"]
    batch = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    trace_id, headers = new_trace()
    batch_id = client.post("/v1/batches", json=batch, headers=headers).json()["id"]
    by_worker = 3 * ("claim", "commit") + 2 * ("job",) + ("encode",)
    spans = observed.collector.trace(trace_id, "POST /v1/batches", *by_worker)
    claims = [span for span in spans if span.name == "claim"]
    assert {span.parent_id for span in claims} == {named(spans, "POST /v1/batches").span_id}
    tasks = [f"{batch_id}-1-{stage}" for stage in ("parse", "embed", "load")]
    assert [span.attributes["messaging.message.id"] for span in claims] == tasks
    jobs = [span.attributes["embedq.job.kind"] for span in spans if span.name == "job"]
    assert (jobs, named(spans, "encode").attributes["embedq.texts"]) == (["batch parse", "batch load"], 1)

    trace_id, headers = new_trace()
    ingestion = {"source": {"documents": [{"id": "1", "text": "a document"}]}, "sink": {"type": "dataset"}}
    client.post("/v1/ingestions", json=ingestion, headers=headers).raise_for_status()
    spans = observed.collector.trace(trace_id, "POST /v1/ingestions", "encode", "job", "job", "job")
    assert {span.attributes.get("embedq.job.kind") for span in spans} >= {
        f"ingestion {stage}" for stage in ("list", "parse", "load")
    }


def test_no_span_has_a_text_or_a_key(observed: Observed) -> None:
    trace_id, headers = new_trace()
    observed.client.get(f"/v1/{TEXT}", headers=headers, params={"q": TEXT})
    unmatched = named(observed.collector.trace(trace_id, "GET unmatched"), "GET unmatched")
    assert unmatched.attributes["http.route"] == "unmatched"
    trace_id, headers = new_trace()
    body = {"input": f"{TEXT} !!nan!!", "user": TEXT}
    assert observed.client.post("/v1/embeddings", json=body, headers=headers).status_code == 422
    request = named(observed.collector.trace(trace_id, *WHOLE[:-1]), "POST /v1/embeddings")
    assert (request.failed, request.attributes["http.response.status_code"]) == (False, 422)
    assert not [secret for secret in (TEXT, KEY) if secret in str(observed.collector.spans)]


def test_a_request_is_one_line_with_its_task_and_its_owner(observed: Observed) -> None:
    client = observed.client

    def call(method: str, path: str, request_id: str, **more: Any) -> dict[str, Any]:
        more["headers"] = {"x-request-id": request_id, **more.pop("headers", {})}
        assert client.request(method, path, **more).headers["x-request-id"] == request_id
        return access(observed, request_id)

    line = call("POST", "/v1/embeddings", "req-1", json={"input": f"{TEXT} !!fail!!"})
    (task_id,) = line["task_ids"]
    assert (line["seconds"] > 0, line["bytes"] > 0, task_id[:5]) == (True, True, "task_")
    told = {name: line[name] for name in ("method", "route", "status", "role", "key", "owner")}
    who = {"key": NAME, "owner": environment_owner(NAME)}
    assert told == {"method": "POST", "route": "/v1/embeddings", "status": 422, "role": "api", **who}
    about = wait_until(lambda: [line for line in lines(observed.worker) if task_id in line.get("task_ids", ())])
    assert all(line["worker"] for line in about)
    assert about[0]["role"] == "worker"

    line = call("GET", "/health/live", "req-2")
    assert (line["key"], line["owner"]) == (None, None)
    line = call("GET", f"/v1/tasks/{task_id}", "req-3", params={"x": TEXT})
    assert (line["route"], line["task_ids"]) == ("/v1/tasks/{task_id}", [task_id])
    line = call("GET", f"/v1/{TEXT}", "req-4", headers={"authorization": f"Bearer wrong-{KEY}"})
    assert line["route"] == "unmatched"
    assert "task_ids" not in call("GET", f"/v1/tasks/{TEXT}", "req-5")


def test_every_line_is_an_object_and_none_has_a_text_or_a_key(observed: Observed) -> None:
    body = {"sources": [], "input": TEXT}
    for path in ("/v1/embeddings", "/v1/tasks", "/v1/ingestions", "/v1/batches"):
        observed.client.post(path, json=body, params={"q": TEXT}, headers={"x-request-id": f"a text: {TEXT}"})
    observed.client.post("/v1/embeddings", content=TEXT.encode(), headers={"x-request-id": "req-6"})
    access(observed, "req-6")
    for process in observed.processes:
        assert all(line.keys() >= ALWAYS for line in lines(process))
        assert lines(process), process.name
        assert not [secret for secret in (TEXT, KEY) if secret in process.log()]
