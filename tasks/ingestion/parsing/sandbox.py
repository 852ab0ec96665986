"""Foreign bytes as the worker sees them: they go into a process that is confined, and text or an error comes out.

A request and its answer are one line of JSON each, and so many bytes as the line says. The worker trusts no answer: a
parser may have been taken over by what it read.
"""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, get_args

import orjson

from tasks.document_error import MAX_WARNED_PAGES, DocumentFailed, DocumentWarning, FailureStage
from tasks.ingestion.parsing.extracted import MAX_TEXT_CHARS, Extracted, Structure, clean, title_of
from tasks.ingestion.parsing.formats import sniff
from tasks.ingestion.parsing.limits import MAX_DOCUMENTS_PER_CHILD, ParseLimits
from tasks.ingestion.parsing.refusals import BEYOND_LIMITS, beyond_limits, empty, no_text, too_large
from tasks.ingestion.parsing.text_encoding import is_plain_utf8

MAX_HARMLESS_BYTES = 256 * 1024
"""Of a document that is read in this process: about 0.1 s."""
MAX_HEADER_BYTES = 2 * 2**20
MAX_BODY_BYTES = 4 * MAX_TEXT_CHARS
MAX_WARNINGS = 100

_CHILD_MODULE = "tasks.ingestion.parsing.sandbox_child"
_ROOT = Path(__file__).resolve().parents[3]
# Nothing of the worker's own: that holds keys and passwords, and a parser may be taken over by what it reads.
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}
_START_S = 60
_TICK_S = 1.0
_END_S = 5
_CHUNK_BYTES = 2**20
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MAX_MESSAGE_CHARS = 1000


T = TypeVar("T")


class ParserNotStarted(Exception):
    """The machine starts no process now. No document is at fault, and the job has to be run again."""


class Sandbox:
    """Reads one document after the other; for one thread. A context manager: its process ends with it.

    Small plain text and Markdown in UTF-8 is read here; all else in a process that is started when it is first needed,
    kept for the next documents, and replaced when it dies or is killed.

    Args:
        limits: of one document.
        progress: called at least every second or so while an answer is awaited; what it raises ends the waiting.
        module: what the process runs.
        max_documents: of one process; another one reads the next.
    """

    def __init__(
        self,
        limits: ParseLimits,
        progress: Callable[[], None] = lambda: None,
        *,
        module: str = _CHILD_MODULE,
        max_documents: int = MAX_DOCUMENTS_PER_CHILD,
    ) -> None:
        self._limits, self._module, self._max_documents = limits, module, max_documents
        self.progress = progress
        self._child: _Child | None = None
        self._answered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """With the thread that has kept it."""
        self.close()

    def close(self) -> None:
        """Ends the process. The next document starts another one."""
        child, self._child, self._answered = self._child, None, 0
        if child:
            child.kill()

    def read(self, data: bytes, name: str) -> Extracted:
        """What a document says. `name` helps to tell its format.

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
        found = sniff(data, name)
        if found.harmless and len(data) <= MAX_HARMLESS_BYTES and is_plain_utf8(data):
            return found.read(data)
        extracted = self.ask({"type": found.media_type}, data, _extracted)
        if not extracted.text.strip():
            raise no_text()
        return extracted

    def ask(
        self,
        header: Mapping[str, Any],
        body: bytes,
        read: Callable[[dict[str, Any], bytes], T],
        *,
        stage: FailureStage = "parsing",
    ) -> T:
        """What `read` makes of header and body of the answer to a request, whose `type` is in `sandbox_child.HANDLERS`.

        It raises `ChildFailed` for an answer that makes no sense: then the process is replaced.

        Raises:
            DocumentFailed: at this stage.
            ParserNotStarted: no process could be started.
        """
        try:
            return read(*self._exchange(header, body, stage))
        except ChildFailed as failed:
            self.close()
            raise beyond_limits(failed.code, self._limits, stage) from None

    def _exchange(self, header: Mapping[str, Any], body: bytes, stage: FailureStage) -> tuple[dict[str, Any], bytes]:
        if self._child and not self._child.alive:  # killed since its last answer: no document's fault
            self.close()
        try:
            child = self._child or self._start()
            answer, answered = child.ask(header, body, self._limits.timeout_s, self.progress)
            failure = _failure(answer, stage) if "code" in answer else None
        except BaseException:  # the document is half read, and nobody waits for it any more
            self.close()
            raise
        self._answered += 1
        if answer.get("spent") or self._answered >= self._max_documents:
            self.close()
        if failure is not None:
            raise failure
        return answer, answered

    def _start(self) -> "_Child":
        try:
            self._child = _Child(self._limits, self._module, self.progress)
        except (OSError, ChildFailed) as error:
            raise ParserNotStarted("the process that parses documents does not start") from error
        return self._child


# ---- the process -----------------------------------------------------------------------------------------------------


class ChildFailed(Exception):
    """The process did not answer, or made no sense; it has to be killed.

    Attributes:
        code: one of `refusals.BEYOND_LIMITS`.
    """

    def __init__(self, code: str = "parser_crashed") -> None:
        super().__init__(code)
        self.code = code


class _Child:
    """Runs in a session of its own, so that all of it can be killed. Belongs to the thread that made it.

    Raises:
        ChildFailed: it did not start.
    """

    def __init__(self, limits: ParseLimits, module: str, progress: Callable[[], None]) -> None:
        arguments = [str(os.getpid()), str(limits.memory_bytes), str(limits.timeout_s)]
        self._popen: Final = subprocess.Popen(  # noqa: S603 - this interpreter, a module of ours
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=_ROOT,
            env=_ENVIRONMENT,
            start_new_session=True,
        )
        if self._popen.stdin is None or self._popen.stdout is None:
            raise AssertionError
        self._requests, self._answers = self._popen.stdin.fileno(), self._popen.stdout.fileno()
        os.set_blocking(self._requests, False)
        try:
            self.ask(None, b"", _START_S, progress)
        except BaseException:
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._popen.poll() is None

    def ask(
        self, header: Mapping[str, Any] | None, body: bytes, timeout_s: float, progress: Callable[[], None]
    ) -> tuple[dict[str, Any], bytes]:
        """Header and body of the answer; None asks nothing, and awaits one. After any error it has to be killed.

        Raises:
            ChildFailed: it was too slow, died or broke the protocol.
        """
        deadline = time.monotonic() + timeout_s
        line = orjson.dumps({**header, "bytes": len(body)}) + b"\n" if header is not None else b""
        rest = [memoryview(piece) for piece in (line, body) if piece]  # the body is not copied
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            if rest:
                selector.register(self._requests, selectors.EVENT_WRITE)
            while (whole := _whole(answer)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ChildFailed("parse_timeout")
                progress()
                for key, _ in selector.select(min(left, _TICK_S)):
                    if key.fd == self._answers:
                        answer += self._read()
                    elif not self._write(rest):
                        selector.unregister(self._requests)
        return whole

    def kill(self) -> None:
        """Ends it and all that it may have started, at once."""
        if self._popen.returncode is None:  # else its id may be somebody else's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        self._popen.wait()

    def _read(self) -> bytes:
        data = os.read(self._answers, _CHUNK_BYTES)
        if not data:
            raise ChildFailed("parse_memory" if self._died_hungry() else "parser_crashed")
        return data

    def _write(self, rest: list[memoryview]) -> bool:
        """Writes as much as the pipe takes; False: nothing is left, or the reader is gone, which `_read` will find."""
        try:
            written = os.write(self._requests, rest[0][:_CHUNK_BYTES])
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        rest[0] = rest[0][written:]
        if not rest[0]:
            del rest[0]
        return bool(rest)

    def _died_hungry(self) -> bool:
        """Whether the kernel killed it, which it does for memory alone; its peak is no sign, as forks inherit it."""
        try:
            return self._popen.wait(_END_S) == -signal.SIGKILL
        except subprocess.TimeoutExpired:  # it has closed its answers and lives on
            return False


# ---- answers ---------------------------------------------------------------------------------------------------------


def _whole(answer: bytearray) -> tuple[dict[str, Any], bytes] | None:
    """Header and body, once all of it has arrived. Raises ChildFailed for what is no answer, or more than one."""
    end = answer.find(b"\n", 0, MAX_HEADER_BYTES) + 1
    if not end and len(answer) < MAX_HEADER_BYTES:
        return None
    try:
        header = orjson.loads(answer[:end])
    except ValueError:
        raise ChildFailed from None
    if not isinstance(header, dict):
        raise ChildFailed
    left = end + _within(header.get("bytes"), 0, MAX_BODY_BYTES) - len(answer)
    if left < 0:
        raise ChildFailed
    return (header, bytes(answer[end:])) if left == 0 else None


def _extracted(answer: Mapping[str, Any], body: bytes) -> Extracted:
    """Raises ChildFailed: it is not the answer of a parser."""
    try:
        text = clean(body.decode())
        title, structure = answer["title"], answer["structure"]
        pages = [_within(page, 0, len(text)) for page in answer["pages"]]
        warnings = [_warning(*values) for values in answer["warnings"]]
    except (KeyError, TypeError, ValueError):
        raise ChildFailed from None
    if len(text) > MAX_TEXT_CHARS or len(warnings) > MAX_WARNINGS or any(a > b for a, b in pairwise(pages)):
        raise ChildFailed
    if structure not in get_args(Structure) or not isinstance(title, str | None):
        raise ChildFailed
    return Extracted(text, cast("Structure", structure), title_of(title), pages, warnings)


def _warning(code: Any, message: Any, pages: Any) -> DocumentWarning:
    numbers = [_within(page, 1, MAX_TEXT_CHARS) for page in pages]
    if len(numbers) > MAX_WARNED_PAGES:
        raise ChildFailed
    return DocumentWarning(*_words(code, message), tuple(numbers))


def _failure(answer: Mapping[str, Any], stage: FailureStage) -> DocumentFailed:
    code, message = _words(answer["code"], answer.get("message", ""))
    if code in BEYOND_LIMITS:
        raise ChildFailed(code)
    return DocumentFailed(code, message, stage)


def _words(code: Any, message: Any) -> tuple[str, str]:
    """A code and a sentence of a reasonable length."""
    if not (isinstance(code, str) and isinstance(message, str) and _CODE.fullmatch(code)):
        raise ChildFailed
    return code, " ".join(clean(message[:_MAX_MESSAGE_CHARS]).split())


def _within(number: Any, least: int, most: int) -> int:
    if type(number) is not int or not least <= number <= most:
        raise ChildFailed
    return number
