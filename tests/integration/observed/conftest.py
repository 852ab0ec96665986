"""A whole service that is observed: its logs are JSON, every request is in them, and a collector gets its traces."""

import gzip
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.key_leaks import fail_on_leaks
from tests.processes import ApiProcess, Process, RedisServer, Roles, WorkerProcess, wait_until

KEY = "key-of-somebody"
NAME = "somebody"
TEXT = "words-that-nobody-may-log"


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it came in. Ids are hexadecimal; the parent of a root is empty. `links`: ids of the spans there."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    attributes: dict[str, Any]
    links: Sequence[str]
    failed: bool


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

    def of(self, trace_id: str) -> list[Span]:
        """The spans of a trace, in the order of their beginning."""
        return sorted((span for span in self.spans if span.trace_id == trace_id), key=lambda span: span.began_ns)

    def trace(self, trace_id: str, *names: str) -> list[Span]:
        """The spans of a trace, once it has these names, each as often as it is given.

        Each process sends its spans when it comes to it. So a test names those of every process that it looks at.
        """
        wanted = Counter(names)

        def complete() -> list[Span] | None:
            spans = self.of(trace_id)
            return spans if wanted <= Counter(span.name for span in spans) else None

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
            self.collector.spans += received(ExportTraceServiceRequest.FromString(unpacked))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def received(request: ExportTraceServiceRequest) -> list[Span]:
    """The spans in a request."""
    return [
        Span(
            service=str(values(resource.resource.attributes)["service.name"]),
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            began_ns=span.start_time_unix_nano,
            attributes=values(span.attributes),
            links=[link.span_id.hex() for link in span.links],
            failed=span.status.code == 2,
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def values(pairs: Sequence[KeyValue]) -> dict[str, Any]:
    """Attributes as a dict."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in pairs}


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

    @property
    def processes(self) -> tuple[Process, ...]:
        return self.api, self.worker, self.documents


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
