"""Parsing as the worker sees it: a document goes in, and its text or its own error comes out."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.frames import ChildFailed, frame, parsed_from_frame
from tasks.documents.parsing.limits import MAX_DOCUMENTS_PER_CHILD, ParseLimits
from tasks.documents.parsing.parsed_document import Parsed
from tasks.documents.parsing.parsing_process import ChildProcess
from tasks.documents.parsing.refusals import BEYOND_LIMITS, beyond_limits, empty, refused, too_large
from tasks.documents.parsing.sniff import sniff
from tasks.documents.parsing.text_encoding import is_plain_utf8

CHILD_MODULE = "tasks.documents.parsing.child"
_MAX_HARMLESS_BYTES = 256 * 1024
"""Of a document that is read in this process: about 0.1 s."""


class ParserNotStarted(Exception):
    """The machine starts no process now. No document is at fault, and the job has to be run again."""


class Parser:
    """Parses one document after the other; for one thread. A context manager: its process ends with it.

    Small plain text and Markdown in UTF-8 is read here; all else in a process that is started when it is first needed,
    kept for the next documents, and replaced when it dies or is killed.

    Args:
        limits: of one document.
        progress: called at least every second or so while a document is parsed; what it raises ends the parsing.
        module: what the process runs.
        max_documents: of one process; another one reads the next.
    """

    def __init__(
        self,
        limits: ParseLimits,
        progress: Callable[[], None] = lambda: None,
        *,
        module: str = CHILD_MODULE,
        max_documents: int = MAX_DOCUMENTS_PER_CHILD,
    ) -> None:
        self._limits = limits
        self._progress = progress
        self._module = module
        self._max_documents = max_documents
        self._child: ChildProcess | None = None
        self._parsed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def child_pid(self) -> int | None:
        """Of the process that parses; None: there is none now."""
        return self._child.pid if self._child else None

    def close(self) -> None:
        """Ends the process. The next document starts another one."""
        child, self._child, self._parsed = self._child, None, 0
        if child:
            child.kill()

    def parse(self, data: bytes, name: str) -> Parsed:
        """The document's text and structure. `name` helps to tell its type.

        Raises:
            DocumentFailed: with a code of `refusals`, at the stage `parsing`.
            ParserNotStarted: no process could be started.
        """
        if not data:
            raise empty()
        if len(data) > self._limits.source_bytes:
            raise too_large(
                f"has {len(data):,} bytes, more than the {self._limits.source_bytes:,} that fit into a quarter of "
                "EMBEDQ_PARSE_MEMORY_BYTES"
            )
        document_format = sniff(data, name)
        if document_format.harmless and len(data) <= _MAX_HARMLESS_BYTES and is_plain_utf8(data):
            return document_format.parse(data)
        return self._parse_apart(document_format.media_type, data)

    def _parse_apart(self, media_type: str, data: bytes) -> Parsed:
        try:
            header, body = (self._child or self._start()).ask(frame({"type": media_type}, data), self._limits.timeout_s)
            parsed = parsed_from_frame(header, body) if "code" not in header else None
        except ChildFailed as failed:
            self.close()
            raise beyond_limits(failed.code, self._limits) from None
        except BaseException:  # the document is half parsed, and nobody waits for it any more
            self.close()
            raise
        self._parsed += 1
        if header.get("spent") or self._parsed >= self._max_documents:
            self.close()
        if parsed is None:
            raise self._failure(header)
        return parsed

    def _start(self) -> ChildProcess:
        try:
            self._child = ChildProcess(self._limits, self._module, self._progress)
        except (OSError, ChildFailed) as error:
            raise ParserNotStarted("the process that parses documents does not start") from error
        return self._child

    def _failure(self, header: Mapping[str, Any]) -> DocumentFailed:
        code = str(header["code"])
        if code in BEYOND_LIMITS:
            return beyond_limits(code, self._limits)
        return refused(code, str(header.get("message", "")))
