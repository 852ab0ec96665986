"""What an operator sees of a whole service: its logs are JSON, requests are in them, a collector gets its traces."""

import gzip
import json
import secrets
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tasks.records.api_keys import environment_owner
from tests.key_leaks import fail_on_leaks
from tests.processes import ApiProcess, Process, RedisServer, Roles, WorkerProcess, wait_until
from tests.source_tree import CHECKOUT
from worker_config.settings import DEFAULT_MODEL

KEY = "key-of-somebody"
NAME = "somebody"
TEXT = "words-that-nobody-may-log"
ALWAYS = {"time", "level", "logger", "message", "role", "pid"}
WHOLE = ("POST /v1/embeddings", "submit", "claim", "encode", "commit", "read", "answer")


@dataclass(slots=True)
class Collector:
    """A collector of traces on loopback: takes OTLP over HTTP as protobuf, and keeps the spans.

    Attributes:
        refuses: takes no spans.
        silent: answers nobody any more until this is set, as one that hangs.
    """

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    refuses: bool = False
    silent: threading.Event | None = None

    def trace(self, trace_id: str, *names: str) -> list[Span]:
        """The spans of a trace in the order of their beginning, once it has these names, each as often as it is given.

        Each process sends its spans when it comes to it. So a test names those of every process that it looks at.
        """
        wanted = Counter(names)

        def complete() -> list[Span] | None:
            spans = [span for span in self.spans if span.trace_id.hex() == trace_id]
            return (
                sorted(spans, key=lambda span: span.start_time_unix_nano)
                if wanted <= Counter(span.name for span in spans)
                else None
            )

        return wait_until(complete, message=f"a trace has not all of {dict(wanted)}")


class _Handler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.collector.silent is not None:
            self.collector.silent.wait()
        elif self.collector.refuses:
            self.send_error(400)
        else:
            assert self.path == "/v1/traces"
            unpacked = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            for of_process in ExportTraceServiceRequest.FromString(unpacked).resource_spans:
                for span in chain.from_iterable(scope.spans for scope in of_process.scope_spans):
                    span.attributes.extend(of_process.resource.attributes)
                    self.collector.spans.append(span)
            self.send_response(200)
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def about(span: Span) -> dict[str, Any]:
    """Its attributes, and those of its process."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in span.attributes}


def has_failed(span: Span) -> bool:
    return span.status.code == Status.STATUS_CODE_ERROR


@contextmanager
def listening() -> Iterator[Collector]:
    """A collector, for the block."""
    collector = Collector()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"collector": collector}))
    collector.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        if collector.silent is not None:
            collector.silent.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with listening() as collector:
        yield collector


@dataclass(frozen=True, slots=True)
class Observed:
    """The processes of a service, a client that has a key, and a collector."""

    api: ApiProcess
    worker: WorkerProcess
    documents: WorkerProcess
    client: httpx.Client
    collector: Collector


def new_trace() -> tuple[str, dict[str, str]]:
    """The id of a trace that a caller begins, and the header that says so."""
    trace_id = secrets.token_hex(16)
    return trace_id, {"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"}


@pytest.fixture(scope="module")
def observed(
    start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("observed")
    redis = start_redis(folder / "redis")
    keys = f"{NAME}:{sha256(KEY.encode()).hexdigest()}"
    try:
        with listening() as collector, pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            environment.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
            environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
            with Roles(folder, redis.url, log_format="json", storage_url=folder / "storage") as roles:
                worker = roles.worker()
                documents = roles.documents()
                api = roles.api(api_keys=keys, access_log="true")
                api.wait_ready()
                with api.client() as client:
                    client.headers["authorization"] = f"Bearer {KEY}"
                    yield Observed(api, worker, documents, client, collector)
                    client.post("/v1/embeddings", json={"input": "the last one"}, headers=new_trace()[1])
                collector.silent = threading.Event()  # the roles stop in time all the same
        fail_on_leaks(redis)
    finally:
        redis.stop()


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
    assert request.parent_span_id.hex() == headers["traceparent"].split("-")[2]
    assert {span.name: span.parent_span_id for span in spans if span is not request} == {
        **dict.fromkeys(("submit", "read", "answer"), request.span_id),
        "claim": submit.span_id,
        **dict.fromkeys(("encode", "commit"), claim.span_id),
    }
    of_worker = {span.name for span in spans if about(span)["service.name"] == "embedq-worker"}
    assert of_worker == {"claim", "encode", "commit"}
    assert not any(map(has_failed, spans))
    assert {name: value for name, value in about(request).items() if name.startswith(("http.", "embedq."))} == {
        "http.request.method": "POST",
        "http.route": "/v1/embeddings",
        "http.response.status_code": 200,
        "embedq.key": NAME,
        "embedq.owner": environment_owner(NAME),
    }
    assert about(claim)["messaging.message.id"] == about(submit)["messaging.message.id"]
    encoded = about(named(spans, "encode"))
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
        [link] = named(observed.collector.trace(trace_id, name), name).links
        assert link.span_id == submit.span_id


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
    assert {span.parent_span_id for span in claims} == {named(spans, "POST /v1/batches").span_id}
    tasks = [f"{batch_id}-1-{stage}" for stage in ("parse", "embed", "load")]
    assert [about(span)["messaging.message.id"] for span in claims] == tasks
    jobs = [about(span)["embedq.job.kind"] for span in spans if span.name == "job"]
    assert (jobs, about(named(spans, "encode"))["embedq.texts"]) == (["batch parse", "batch load"], 1)

    trace_id, headers = new_trace()
    ingestion = {"source": {"documents": [{"id": "1", "text": "a document"}]}, "sink": {"type": "dataset"}}
    client.post("/v1/ingestions", json=ingestion, headers=headers).raise_for_status()
    spans = observed.collector.trace(trace_id, "POST /v1/ingestions", "encode", "job", "job", "job")
    assert {about(span).get("embedq.job.kind") for span in spans} >= {
        f"ingestion {stage}" for stage in ("list", "parse", "load")
    }


def test_no_span_has_a_text_or_a_key(observed: Observed) -> None:
    trace_id, headers = new_trace()
    observed.client.get(f"/v1/{TEXT}", headers=headers, params={"q": TEXT})
    unmatched = named(observed.collector.trace(trace_id, "GET unmatched"), "GET unmatched")
    assert about(unmatched)["http.route"] == "unmatched"
    trace_id, headers = new_trace()
    body = {"input": f"{TEXT} !!nan!!", "user": TEXT}
    assert observed.client.post("/v1/embeddings", json=body, headers=headers).status_code == 422
    request = named(observed.collector.trace(trace_id, *WHOLE[:-1]), "POST /v1/embeddings")
    assert (has_failed(request), about(request)["http.response.status_code"]) == (False, 422)
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
    for process in (observed.api, observed.worker, observed.documents):
        assert all(line.keys() >= ALWAYS for line in lines(process))
        assert lines(process), process.name
        assert not [secret for secret in (TEXT, KEY) if secret in process.log()]


# ---- spans as they are made and sent, by a process without a service around it ---------------------------------------

OPEN = """
from worker_config.logs import configure_logging
from worker_config.telemetry import close_traces, describe_request, open_traces, request_span, span, traceparent
configure_logging("info", "text", "api")
provider = open_traces(role="api", instance="test")

def call(route, parent=""):
    with request_span(route, parent) as request:
        with span("submit"):
            said = traceparent()
        if request.is_recording():
            describe_request(request, "POST", route, 200, {})
    return said
"""


def run(url: str, code: str, **variables: str) -> tuple[list[str], str]:
    """What a process prints that traces its calls to a collector, and its log. A provider is for a process's life."""
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "PYTHONPATH": str(CHECKOUT), **variables}
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{OPEN}\n{code}\nclose_traces(provider)"],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return done.stdout.split(), done.stderr


def test_what_begins_and_continues_a_trace_and_what_a_failure_tells(collector: Collector) -> None:
    """A stop sends the last spans; probes begin no trace; of an error there is the type and not its text."""
    ids = f"{'a' * 32}-{'b' * 16}"
    theirs = [f"00-{ids}-01", f"cc-{ids}-01", f"cc-{ids}-01-what-a-later-version-says"]
    wrong = ["", f"00-{ids}-01-more", f"ff-{ids}-01", f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'0' * 16}-01"]
    code = f"""
print(*(call('/v1/tasks', parent)[3:35] == 'a' * 32 for parent in {[*theirs, *wrong]} + ['a' * 60_000]))
print(*map(bool, [call('/health/live'), call('/metrics'), call('/health/live', '00-{ids}-01')]))
try:
    with request_span('/v1/tasks', ''), span('fails'):
        raise ValueError('{TEXT}')
except ValueError:
    pass
with request_span('/v1/tasks', '') as request:
    describe_request(request, 'POST', '/v1/fails', 500, {{}})
"""
    said, log = run(collector.url, code)
    assert said == ["True"] * len(theirs) + ["False"] * (len(wrong) + 1) + ["False", "False", "True"]
    assert "export" not in log
    assert {span.name: about(span).get("error.type") for span in collector.spans if has_failed(span)} == {
        "fails": "ValueError",
        "request": "ValueError",
        "POST /v1/fails": "500",
    }
    assert {span.name for span in collector.spans if not has_failed(span)} >= {"submit", "POST /v1/tasks"}
    assert TEXT not in str(collector.spans)


def test_a_collector_that_takes_nothing_is_said_and_costs_nothing_else(collector: Collector) -> None:
    collector.refuses = True
    _, log = run(collector.url, "for _ in range(9):\n    call('/lost')")
    (line,) = log.splitlines()
    assert "Failed to export span" in line
    _, log = run("nonsense://user:secret@collector", "call('/lost')")
    assert "export" in log
    assert "secret" not in log


def test_without_the_extra_there_are_no_traces_and_the_log_says_so() -> None:
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    code = f"import sys\nsys.modules['{exporter}'] = None\nprint(open_traces(role='api'))"
    for url in ("", "http://127.0.0.1:1"):
        said, log = run(url, f"del provider\n{code}\nprovider = None")
        assert said == ["None"]
        assert ("pip install 'embedq[traces]'" in log) is bool(url)
