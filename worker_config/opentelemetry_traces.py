"""Traces by OpenTelemetry, sent by OTLP over HTTP. `worker_config.traces` imports this file, where traces are on."""

import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Self

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from worker_config.subject import SpanAttributes, TracedPiece

_log = logging.getLogger(__name__)

_FLUSH_S, _LAST_FLUSH_S = 0.2, 0.5
_EXPORT_EVERY_MS = 200
"""A worker that dies loses what it has not sent: what it had claimed should be seen."""
_SEND_S = 2.0
_MAX_TRACED = 64
"""Traced tasks of one claim; further ones have no spans of it."""
_UNTRACED = ("/health", "/metrics")
"""Probes and scrapes begin no trace."""
# The version 00 ends here. A later one may say more behind a hyphen, and is read like 00.
_TRACEPARENT = re.compile(
    r"(?:00(?=.{53}\Z)|(?!00|ff)[0-9a-f]{2}(?=.{53}(?:-|\Z)))"
    r"-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
)
_FAILED_STATUS = 500
_KINDS = {"submit": SpanKind.PRODUCER, "claim": SpanKind.CONSUMER}


class OpenTelemetry:
    """See `worker_config.traces.Traces`.

    Args:
        role: of this process.
        instance: which of the role's processes this is.
    """

    def __init__(self, *, role: str, instance: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # `_Exporter` says it once
        resource = Resource.create(
            {
                "service.namespace": "embedq",
                "service.name": f"embedq-{role}",
                "service.instance.id": instance or f"{socket.gethostname()}:{os.getpid()}",
                "host.name": socket.gethostname(),
                "process.pid": os.getpid(),
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_Exporter(), schedule_delay_millis=_EXPORT_EVERY_MS))
        self._tracer = self._provider.get_tracer("embedq")

    def begin(self, path: str, traceparent: str) -> "ServerSpan | None":
        """See `Traces.begin`."""
        if path.startswith(_UNTRACED) and not _TRACEPARENT.match(traceparent):
            return None
        span = self._tracer.start_span("request", _context(traceparent), kind=SpanKind.SERVER)
        return ServerSpan(self._tracer, span) if span.is_recording() else None

    def claimed(self, queue: str, pieces: Sequence[TracedPiece], began_ns: int) -> "ClaimSpans | None":
        """See `Traces.claimed`."""
        traced = {piece.task_id: piece for piece in pieces if piece.trace}
        if not traced:
            return None
        spans = ClaimSpans(self._tracer, queue, pieces, list(traced.values())[:_MAX_TRACED], began_ns)
        if pieces[0].deaths:  # it has seen a worker die, and this one may die at once
            self.flush()
        return spans

    def flush(self) -> None:
        """See `Traces.flush`."""
        _within(_FLUSH_S, self._provider.force_flush)

    def close(self) -> None:
        """See `Traces.close`."""
        _within(_LAST_FLUSH_S, self._provider.shutdown)


class ServerSpan:
    """See `worker_config.subject.RequestTrace`."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._span.get_span_context().trace_id:032x}"

    @property
    def traceparent(self) -> str:
        """By which others continue below the request."""
        return _traceparent(self._span)

    def child(self, name: str) -> "ChildSpan":
        """See `RequestTrace.child`."""
        return ChildSpan(_start(self._tracer, name, set_span_in_context(self._span, Context())))

    def link(self, traceparent: str) -> None:
        """See `RequestTrace.link`."""
        if (task := _span_context(traceparent)) is not None and task != self._span.get_span_context():
            self._span.add_link(task)

    def end(self, method: str, route: str, status: int, attributes: SpanAttributes) -> None:
        """See `RequestTrace.end`."""
        self._span.update_name(f"{method} {route}")
        self._span.set_attributes(
            {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "url.scheme": "http",
                **attributes,
            }
        )
        if status >= _FAILED_STATUS:
            _fail(self._span, str(status))
        self._span.end()


class ChildSpan:
    """See `worker_config.subject.OpenSpan`. A context manager."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        """By which others continue below this span."""
        return _traceparent(self._span)

    def set(self, attributes: SpanAttributes) -> None:
        """What is known of it."""
        self._span.set_attributes(attributes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            _fail(self._span, kind.__name__)
        self._span.end()


class ClaimSpans:
    """See `worker_config.traces.ClaimTrace`. `traced`: one piece of each task that is."""

    def __init__(
        self, tracer: Tracer, queue: str, pieces: Sequence[TracedPiece], traced: Sequence[TracedPiece], began_ns: int
    ) -> None:
        self._tracer = tracer
        self._claims: dict[str, Context] = {}
        for piece in traced:
            attributes: SpanAttributes = {
                "messaging.system": "embedq",
                "messaging.operation.name": "claim",
                "messaging.operation.type": "receive",
                "messaging.destination.name": queue,
                "messaging.message.id": piece.task_id,
                "messaging.batch.message_count": len(pieces),
                "embedq.claim.items": sum(one.items for one in pieces),
                "embedq.attempt": piece.deaths + 1,
            }
            span = _start(tracer, "claim", _context(piece.trace), attributes, began_ns)
            span.end()
            self._claims[piece.task_id] = set_span_in_context(span, Context())

    def add(
        self,
        name: str,
        began_ns: int,
        attributes: SpanAttributes,
        *,
        of: Collection[str] | None = None,
        error: str = "",
    ) -> None:
        """See `ClaimTrace.add`."""
        for task_id, claim in self._claims.items():
            if of is None or task_id in of:
                span = _start(self._tracer, name, claim, attributes, began_ns)
                if error:
                    _fail(span, error)
                span.end()


class _Exporter(SpanExporter):
    """Sends spans, and says once when they get lost and once when they no longer do."""

    def __init__(self) -> None:
        self._otlp = OTLPSpanExporter(timeout=_SEND_S, compression=Compression.Gzip)
        self._losing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends them; those that the collector does not take are lost."""
        result = self._otlp.export(spans)
        losing = result is not SpanExportResult.SUCCESS
        if losing and not self._losing:
            _log.warning("the collector does not take spans (OTEL_EXPORTER_OTLP_ENDPOINT); they are lost until it does")
        elif self._losing and not losing:
            _log.warning("the collector takes spans again")
        self._losing = losing
        return result

    def shutdown(self) -> None:
        """Ends the connection."""
        self._otlp.shutdown()  # type: ignore[no-untyped-call]  # their own lacks the annotation


def _within(seconds: float, send: Callable[[], object]) -> None:
    # OpenTelemetry's own limits do not hold: a collector that hangs would hold a stop for as long as a call takes.
    sending = threading.Thread(target=send, name="spans", daemon=True)
    sending.start()
    sending.join(seconds)


def _start(
    tracer: Tracer, name: str, parent: Context, attributes: SpanAttributes | None = None, began_ns: int | None = None
) -> Span:
    kind = _KINDS.get(name, SpanKind.INTERNAL)
    return tracer.start_span(name, parent, kind=kind, attributes=attributes, start_time=began_ns)


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR))


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def _span_context(traceparent: str) -> SpanContext | None:
    found = _TRACEPARENT.match(traceparent)
    if found is None:
        return None
    return SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=TraceFlags(int(found[3], 16)))


def _context(traceparent: str) -> Context:
    """The one below which a span begins; empty, so that a trace begins, where there is no caller's."""
    parent = _span_context(traceparent)
    return Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context())
