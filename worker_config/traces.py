"""Traces of a process: from a request over its task to the vectors. Without a collector there are none, at no cost.

OpenTelemetry's own variables say where they go and which requests are sampled (`OTEL_*`).

    POST /v1/embeddings            the server span, in the caller's trace where it sent `traceparent`
      submit                       SUBMIT stored the task, and with it the `traceparent` of this span
        claim                      a worker took pieces of the task
          encode                   a portion of the claim went through the model
          commit                   its vectors were stored
      read                         the result came from the ledger
      answer                       its bytes were made

The span `claim` ends with the call that took the pieces, and is sent at once: of a worker that dies, its claim is seen,
and the next attempt has a `claim` of its own.

A claim holds pieces of many tasks. Each task that is traced has spans of its own in its own trace, because a trace is
shown as a tree: a span of another trace that is only linked is in nobody's picture. The numbers of these spans are
those of the whole claim. Attributes follow OpenTelemetry's semantic conventions; what these do not know begins with
`embedq.`. No attribute holds a text, a key, a path or a query.
"""

import logging
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from typing import Protocol

from worker_config.settings import names_collector
from worker_config.subject import RequestTrace, SpanAttributes, TracedPiece

_log = logging.getLogger(__name__)


class ClaimTrace(Protocol):
    """The spans of a claim that holds pieces of traced tasks."""

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


class Traces(Protocol):
    """Makes spans, and sends them in a thread of its own."""

    def begin(self, path: str, traceparent: str) -> RequestTrace | None:
        """The trace of a request that begins now; None when it is not sampled.

        By default, a caller that sends a valid `traceparent` has decided that.
        """

    def claimed(self, queue: str, pieces: Sequence[TracedPiece], began_ns: int) -> ClaimTrace | None:
        """The spans of a claim whose call began then; None when none of its tasks is traced."""

    def flush(self) -> None:
        """Sends what there is now, for a fifth of a second at most."""

    def close(self) -> None:
        """Sends what there is, for half a second at most."""


def open_traces(*, role: str, instance: str = "") -> Traces | None:
    """The traces of this process; None without a collector. To be called after the last fork.

    `instance`: its name among those of its role; empty: host and process id.
    """
    if not names_collector():
        return None
    if not can_trace():
        _log.warning("no traces: they need OpenTelemetry: pip install 'embedq[traces]'")
        return None
    from worker_config.opentelemetry_traces import OpenTelemetry  # noqa: PLC0415 - costs memory, and may not be installed

    return OpenTelemetry(role=role, instance=instance)


def can_trace() -> bool:
    """Whether the extra `traces` is installed."""
    try:
        needed = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
        return all(find_spec(name) is not None for name in needed)
    except ModuleNotFoundError:  # a package above it is missing
        return False
