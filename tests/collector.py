"""A collector of traces on loopback: takes OTLP over HTTP as protobuf, and keeps the spans."""

import gzip
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came in. Ids are hexadecimal; the parent of a root is empty. `links`: ids of the spans there."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    links: Sequence[str] = ()
    failed: bool = False


@dataclass(slots=True)
class Collector:
    """Listens while it is entered.

    Attributes:
        spans: all that came in so far.
        refused: how many calls were refused.
        refuses: takes no spans.
        silent: answers nobody any more, as one that hangs.
    """

    spans: list[ReceivedSpan] = field(default_factory=list)
    refused: int = 0
    refuses: bool = False
    silent: bool = False
    _server: ThreadingHTTPServer | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Its base address."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_port}"

    def of(self, trace_id: str) -> list[ReceivedSpan]:
        """The spans of a trace, in the order of their beginning."""
        return sorted((span for span in self.spans if span.trace_id == trace_id), key=lambda span: span.began_ns)

    def __enter__(self) -> Self:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if collector.silent:
                    collector._ended.wait()
                    return
                if collector.refuses:
                    collector.refused += 1
                    self.send_error(400)
                    return
                unpacked = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
                assert self.path == "/v1/traces"
                collector.spans += received(ExportTraceServiceRequest.FromString(unpacked))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()


def received(request: ExportTraceServiceRequest) -> list[ReceivedSpan]:
    """The spans in a request."""
    return [
        ReceivedSpan(
            service=str(values(resource.resource.attributes)["service.name"]),
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            began_ns=span.start_time_unix_nano,
            ended_ns=span.end_time_unix_nano,
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
