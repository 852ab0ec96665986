"""Parquet read in a process of its own: its library is in C++, and a small file may ask it for gigabytes.

JSON lines and CSV are read by the worker itself: Python alone, in memory that is bounded by the longest record.

A conversation begins with a request of the worker. The process answers with records, one batch at a time, or asks for
bytes of the file, which it cannot open itself. It is kept for the next conversation, because it holds the tables that
it has begun to read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from tasks.document_error import DocumentError, DocumentFailed
from tasks.documents.sources.content import Content
from tasks.documents.sources.frames import ChildFailed, frame
from tasks.documents.sources.parsing_process import ChildProcess
from tasks.documents.sources.record_fields import Described, FieldMap, require_storable
from tasks.documents.sources.records import Record
from tasks.errors import Unavailable
from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.parsing.refusals import BEYOND_LIMITS, beyond_limits

T = TypeVar("T")

_CHILD_MODULE = "tasks.documents.sources.records_child"
MAX_READ_BYTES = 8 * 2**20
"""Bytes of the file in one message."""


class RecordProcesses:
    """Processes that read records; an idle one is kept. Every conversation belongs to one thread.

    Args:
        limits: memory of a process, and time for each of its answers.
        module: what a process runs.
    """

    def __init__(self, limits: ParseLimits, *, module: str = _CHILD_MODULE) -> None:
        self._limits = limits
        self._module = module
        self._idle: list[ChildProcess] = []

    @property
    def idle_pids(self) -> list[int]:
        """Ids of the idle processes."""
        return [child.pid for child in self._idle]

    def close(self) -> None:
        """Ends the idle processes."""
        while self._idle:
            self._idle.pop().kill()

    def conversation(
        self,
        request: Mapping[str, Any],
        content: Content,
        progress: Callable[[], None],
        read: Callable[[Mapping[str, Any], bytes], Iterator[T]],
    ) -> Iterator[T]:
        """What `read` makes of header and body of each batch. The caller may leave it before its end.

        Raises:
            DocumentFailed: the file is not of this format, or too much for the process, which is replaced.
            Unavailable: no process could be started. Exceptions of `content` and `progress` are passed on.
        """
        child = self._borrow(progress)
        kept = False
        try:
            header, body = self._ask(child, frame(request))
            while "end" not in header:
                if "read" in header:
                    first, size = _span(header["read"])
                    header, body = self._ask(child, frame({}, content.read(first, min(size, MAX_READ_BYTES))))
                    continue
                try:
                    yield from read(header, body)
                except GeneratorExit:
                    with suppress(DocumentFailed, ChildFailed):
                        kept = "end" in self._ask(child, frame({"stop": True}))[0]
                    raise
                header, body = self._ask(child, frame({"more": True}))
            kept = not header.get("spent")
        except ChildFailed as failed:
            raise beyond_limits(failed.code, self._limits, "listing") from None
        finally:
            if kept and not self._idle:
                self._idle.append(child)
            else:
                child.kill()

    def _borrow(self, progress: Callable[[], None]) -> ChildProcess:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                child.progress = progress
                return child
            child.kill()
        try:
            return ChildProcess(self._limits, self._module, progress)
        except (OSError, ChildFailed) as error:
            raise Unavailable("No process can be started that reads records.", retry_after_s=5) from error

    def _ask(self, child: ChildProcess, pieces: Sequence[bytes]) -> tuple[dict[str, Any], bytes]:
        header, body = child.ask(pieces, self._limits.timeout_s)
        if "code" not in header:
            return header, body
        if header["code"] in BEYOND_LIMITS:
            raise ChildFailed(str(header["code"]))
        raise DocumentFailed(str(header["code"]), str(header.get("message", "")), "listing")


class RecordsApart:
    """A `RecordFormat` whose records another process reads."""

    def __init__(self, processes: RecordProcesses, fields: FieldMap, max_record_bytes: int) -> None:
        self._processes = processes
        self._fields = fields
        self._max_bytes = max_record_bytes

    def records(self, content: Content, position: Any, progress: Callable[[], None]) -> Iterator[Record]:
        """See `RecordFormat`."""
        request = self._request(content) | {"position": position}
        yield from self._processes.conversation(request, content, progress, records_from_frame)

    def again(
        self, content: Content, places: Sequence[Any], progress: Callable[[], None]
    ) -> Iterator[str | DocumentError]:
        """See `RecordFormat`."""
        if places:
            request = self._request(content) | {"places": list(places)}
            yield from self._processes.conversation(request, content, progress, texts_from_frame)

    def _request(self, content: Content) -> dict[str, Any]:
        return {
            "name": content.name,
            "size": content.size_bytes,
            "version": content.version,
            "fields": self._fields.to_json(),
            "max_record_bytes": self._max_bytes,
        }


# ---- messages; the worker trusts no answer ---------------------------------------------------------------------------


def record_to_values(record: Record) -> list[Any]:
    """A record as JSON."""
    document, error = record.document, record.error
    description = None
    if document is not None:
        description, error = [document.id, dict(document.metadata), document.named], document.error
    return [
        record.number,
        description,
        record.size_bytes,
        record.source_bytes,
        record.place,
        record.then,
        _error_values(error),
    ]


def record_from_values(values: Any) -> Record:
    """Inverse of `record_to_values`; raises ChildFailed."""
    try:
        number, description, size_bytes, source_bytes, place, then, error = values
        document, failure = None, _error_of(error)
        if description is not None:
            own_id, metadata, named = description
            if not (isinstance(own_id, str | None) and isinstance(metadata, dict)):
                raise ChildFailed
            document, failure = Described(own_id, metadata, failure, named=bool(named)), None
        return Record(int(number), document, int(size_bytes), int(source_bytes), place, then, failure)
    except (TypeError, ValueError):
        raise ChildFailed from None


def records_from_frame(header: Mapping[str, Any], _: bytes) -> Iterator[Record]:
    """The records of a batch; raises ChildFailed."""
    return map(record_from_values, _listed(header, "records"))


def frame_from_texts(texts: Sequence[str | DocumentError]) -> list[bytes]:
    """Texts, and errors in place of missing texts, as pieces to write."""
    encoded = [text.encode() if isinstance(text, str) else b"" for text in texts]
    pairs = zip(texts, encoded, strict=True)
    sizes = [len(data) if isinstance(text, str) else _error_values(text) for text, data in pairs]
    return frame({"texts": sizes}, b"".join(encoded))


def texts_from_frame(header: Mapping[str, Any], body: bytes) -> Iterator[str | DocumentError]:
    """Inverse of `frame_from_texts`; raises ChildFailed."""
    at = 0
    for size in _listed(header, "texts"):
        if not isinstance(size, int):
            error = _error_of(size)
            if error is None:
                raise ChildFailed
            yield error
            continue
        try:
            text = body[at : at + size].decode()
            require_storable(text)
        except (UnicodeDecodeError, DocumentFailed):
            raise ChildFailed from None
        at += size
        yield text


def _error_values(error: DocumentError | None) -> list[str] | None:
    return None if error is None else [error.code, error.message]


def _error_of(values: Any) -> DocumentError | None:
    if values is None:
        return None
    code, message = values
    return DocumentError(str(code), str(message), "listing")


def _listed(header: Mapping[str, Any], name: str) -> Sequence[Any]:
    values = header.get(name)
    if not isinstance(values, list):
        raise ChildFailed
    return values


def _span(span: Any) -> tuple[int, int]:
    try:
        first, size = span
        return max(0, int(first)), max(0, int(size))
    except (TypeError, ValueError):
        raise ChildFailed from None
