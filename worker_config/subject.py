"""What this asyncio task, or this thread, works on: a request, or the tasks of a claim. Log lines and spans say it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeAlias

SpanAttributes: TypeAlias = Mapping[str, str | int | float | bool]


class OpenSpan(Protocol):
    """A span of a request that is sampled."""

    @property
    def traceparent(self) -> str:
        """By which others continue below this span (W3C Trace Context)."""

    def set(self, attributes: SpanAttributes) -> None:
        """What is known of it."""


class RequestTrace(Protocol):
    """The trace of a request that is sampled."""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits."""

    @property
    def traceparent(self) -> str:
        """By which others continue below the request."""

    def child(self, name: str) -> AbstractContextManager[OpenSpan]:
        """A span within the request; an exception that leaves it is its error."""

    def link(self, traceparent: str) -> None:
        """The request concerns a task of that trace; empty: of none."""

    def end(self, method: str, route: str, status: int, attributes: SpanAttributes) -> None:
        """The request is answered."""


class TracedPiece(Protocol):
    """A piece of a claim."""

    @property
    def task_id(self) -> str:
        """Its task."""

    @property
    def items(self) -> int:
        """Number of its texts."""

    @property
    def deaths(self) -> int:
        """How often a worker died while it held this piece."""

    @property
    def trace(self) -> str:
        """`traceparent` of its task; empty when that is not traced."""


@dataclass(slots=True)
class Subject:
    """What is worked on.

    Attributes:
        request_id: of the request; empty where there is none.
        task_ids: of the tasks, as far as they are known.
        trace: of the request; None unless it is sampled.
    """

    request_id: str = ""
    task_ids: Sequence[str] = ()
    trace: RequestTrace | None = None


_subject: ContextVar[Subject | None] = ContextVar("subject", default=None)
_NO_SPAN = nullcontext()

current_subject = _subject.get


def set_subject(subject: Subject) -> None:
    """This asyncio task, or this thread, works on `subject` from now on."""
    _subject.set(subject)


def subject_is_task(task_id: str) -> None:
    """The request that is worked on concerns this task."""
    if (subject := _subject.get()) is not None:
        subject.task_ids = (task_id,)


@contextmanager
def about_tasks(task_ids: Sequence[str]) -> Iterator[None]:
    """This thread works on these tasks; claims may nest."""
    token = _subject.set(Subject(task_ids=task_ids))
    try:
        yield
    finally:
        _subject.reset(token)


def request_trace() -> RequestTrace | None:
    """Of the request that is worked on; None unless it is sampled."""
    subject = _subject.get()
    return None if subject is None else subject.trace


def link_task(traceparent: str) -> None:
    """The request that is worked on concerns a task of this trace."""
    if traceparent and (trace := request_trace()) is not None:
        trace.link(traceparent)


def span(name: str) -> AbstractContextManager[OpenSpan | None]:
    """A span within the request that is worked on; None, and next to no cost, where that is not sampled."""
    trace = request_trace()
    return _NO_SPAN if trace is None else trace.child(name)
