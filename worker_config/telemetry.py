"""Traces by OpenTelemetry: from a request over its task to the vectors. Without its SDK its API does next to nothing.

OpenTelemetry's own variables say where spans go and which requests are sampled (`OTEL_*`).

    POST /v1/embeddings            the server span, in the caller's trace where it sent `traceparent`
      submit                       SUBMIT stored the task, and with it the `traceparent` of this span
        claim                      a worker took pieces of the task
          encode                   a portion of the claim went through the model
          commit                   its vectors were stored
      read                         the result came from the ledger
      answer                       its bytes were made

The span `claim` ends with the call that took the pieces: of a worker that dies later, its claim is seen, and the next
attempt has a `claim` of its own.

A claim holds pieces of many tasks. Each task that is traced has spans of its own in its own trace, because a trace is
shown as a tree: a span of another trace that is only linked is in nobody's picture. The numbers of these spans are
those of the whole claim. Attributes follow OpenTelemetry's semantic conventions; what these do not know begins with
`embedq.`. No attribute holds a text, a key, a path or a query, and of an exception a span has the type: hence no
`record_exception`, and a server span of our own instead of FastAPI's.
"""

import logging
import os
import socket
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from worker_config.settings import names_collector

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

SpanAttributes: TypeAlias = Mapping[str, str | int | float | bool]
RequestSpan: TypeAlias = Span

_log = logging.getLogger(__name__)

_LAST_FLUSH_S = 0.5
_MAX_TRACED = 64
"""Traced tasks of one claim; further ones have no spans of it."""
_UNTRACED = ("/health", "/metrics")
"""Probes and scrapes begin no trace."""
_FAILED_STATUS = 500

_tracer = trace.get_tracer("embedq")
_w3c = TraceContextTextMapPropagator()


def open_traces(*, role: str, instance: str = "") -> "TracerProvider | None":
    """Has this process send its spans; None without a collector. To be called after the last fork.

    `instance`: its name among those of its role; empty: host and process id.
    """
    if not names_collector():
        return None
    try:  # they cost memory, and may not be installed, or only the exporter for gRPC
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        _log.warning("no traces: they need OpenTelemetry: pip install 'embedq[traces]'")
        return None

    host, pid = socket.gethostname(), os.getpid()
    named: dict[str, str | int] = {"service.namespace": "embedq", "service.name": f"embedq-{role}"}
    named |= {"host.name": host, "process.pid": pid, "service.instance.id": instance or f"{host}:{pid}"}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def close_traces(provider: "TracerProvider | None") -> None:
    """Sends what there is, for half a second at most: a silent collector would hold a stop as long as a call takes."""
    if provider is not None:
        sending = threading.Thread(target=provider.shutdown, name="spans", daemon=True)
        sending.start()
        sending.join(_LAST_FLUSH_S)


@contextmanager
def request_span(path: str, traceparent: str) -> Iterator[Span]:
    """The server span of a request that begins now, in the caller's trace where it sent one."""
    nobody_takes_it = isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    if nobody_takes_it or (path.startswith(_UNTRACED) and not traceparent):
        yield trace.INVALID_SPAN
        return
    with _started("request", context=_below(traceparent), kind=SpanKind.SERVER) as span:
        yield span


def describe_request(span: Span, method: str, route: str, status: int, attributes: SpanAttributes) -> None:
    """What is known of a request once it is answered."""
    span.update_name(f"{method} {route}")
    told: dict[str, str | int] = {"http.request.method": method, "http.route": route, "url.scheme": "http"}
    span.set_attributes({**told, "http.response.status_code": status, **attributes})
    if status >= _FAILED_STATUS:
        _fail(span, str(status))


@contextmanager
def span(name: str) -> Iterator[Span]:
    """A span within the request that is worked on; one that records nothing, where that is not sampled."""
    if not trace.get_current_span().is_recording():
        yield trace.INVALID_SPAN
        return
    with _started(name, kind=SpanKind.PRODUCER if name == "submit" else SpanKind.INTERNAL) as made:
        yield made


def traceparent() -> str:
    """By which others continue below what is worked on (W3C Trace Context); empty where that is not sampled."""
    carrier: dict[str, str] = {}
    if trace.get_current_span().is_recording():
        _w3c.inject(carrier)
    return carrier.get("traceparent", "")


def link_task(traceparent: str) -> None:
    """The request that is worked on concerns a task of this trace; empty: of none."""
    current = trace.get_current_span()
    if traceparent and current.is_recording():
        task = trace.get_current_span(_below(traceparent)).get_span_context()
        if task.is_valid and task != current.get_span_context():
            current.add_link(task)


class ClaimTrace:
    """The spans of a claim that holds pieces of traced tasks.

    Args:
        queue: that was claimed from.
        traced: id of a task, its `traceparent`, and how often a worker has died with its piece.
        attributes: of all of them.
        began_ns: when the call began.
    """

    def __init__(
        self, queue: str, traced: Iterable[tuple[str, str, int]], attributes: SpanAttributes, began_ns: int
    ) -> None:
        self._claims: dict[str, Context] = {}
        common = {"messaging.system": "embedq", "messaging.operation.name": "claim"}
        common |= {"messaging.operation.type": "receive", "messaging.destination.name": queue}
        for task_id, parent, deaths in list(traced)[:_MAX_TRACED]:
            own: dict[str, str | int] = {"messaging.message.id": task_id, "embedq.attempt": deaths + 1}
            claim = _tracer.start_span(
                "claim", _below(parent), SpanKind.CONSUMER, {**common, **attributes, **own}, start_time=began_ns
            )
            claim.end()
            self._claims[task_id] = trace.set_span_in_context(claim, Context())

    def add(
        self,
        name: str,
        began_ns: int,
        attributes: SpanAttributes,
        *,
        of: Collection[str] | None = None,
        error: str = "",
    ) -> None:
        """A span that ends now, below the claim's. `of`: the tasks that it concerns; None: all."""
        for task_id, claim in self._claims.items():
            if of is None or task_id in of:
                made = _tracer.start_span(name, claim, attributes=attributes, start_time=began_ns)
                if error:
                    _fail(made, error)
                made.end()


@contextmanager
def _started(name: str, *, context: Context | None = None, kind: SpanKind) -> Iterator[Span]:
    with _tracer.start_as_current_span(
        name, context, kind, record_exception=False, set_status_on_exception=False
    ) as made:
        try:
            yield made
        except BaseException as error:
            _fail(made, type(error).__name__)
            raise


def _below(traceparent: str) -> Context:
    return _w3c.extract({"traceparent": traceparent}, Context())


def _fail(failed: Span, error: str) -> None:
    failed.set_attribute("error.type", error)
    failed.set_status(StatusCode.ERROR)
