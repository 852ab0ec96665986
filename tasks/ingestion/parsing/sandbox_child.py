"""The process in the sandbox: `python -m tasks.ingestion.parsing.sandbox_child PARENT_PID MEMORY_BYTES TIMEOUT_S`.

Reads requests from its standard input and answers each on its original standard output, until the input ends. If it
hangs, crashes or runs out of memory, its parent kills and replaces it. Before it loads any library it confines itself:
its memory is limited, it can write no file and no core, the kernel kills it first when the machine runs out of memory,
and it dies with its parent, or at the latest when the time for its document is over.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.extracted import Extracted
from tasks.ingestion.parsing.formats import FORMATS
from tasks.ingestion.parsing.limits import SPENT_BYTES
from tasks.ingestion.sources import tabular

Handler: TypeAlias = Callable[[Mapping[str, Any], bytes], tuple[dict[str, Any], bytes]]
"""Header and body of a request -> those of its answer. Raises `DocumentFailed`."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>; fires when the *thread* that forked us ends
_MAX_OPEN_FILES = 64
_GRACE_S = 5  # the parent kills in time; this is for children whose parent is gone
_KIB = 1024


def _read(read: Callable[[bytes], Extracted], _: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    found = read(data)
    header = {
        "title": found.title,
        "structure": found.structure,
        "pages": list(found.pages),
        "warnings": [list(warning) for warning in found.warnings],
    }
    return header, found.text.encode()


HANDLERS: dict[str, Handler] = {**{one.media_type: partial(_read, one.read) for one in FORMATS}, **tabular.HANDLERS}
"""By the `type` of a request."""


def main(arguments: Sequence[str]) -> None:
    """Answers until its input ends; exits early after a document for which it grew too large."""
    parent_pid, memory_bytes, timeout_s = int(arguments[0]), int(arguments[1]), float(arguments[2])
    _confine(parent_pid, memory_bytes)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    header, body = dict[str, Any](), b""
    while True:
        answers.writelines((orjson.dumps({**header, "bytes": len(body)}), b"\n", body))
        answers.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)
        line = requests.readline() if not header.get("spent") else b""
        if not line:
            return
        request = orjson.loads(line)
        data = requests.read(request["bytes"])
        signal.setitimer(signal.ITIMER_REAL, timeout_s + _GRACE_S)
        header, body = _answer(request, data)


def _confine(parent_pid: int, memory_bytes: int) -> None:
    """Limits this process before it reads anything that a caller has sent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which decides
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
    if os.getppid() != parent_pid:  # it died before the kernel was asked
        sys.exit(1)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_OPEN_FILES, _MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _answer(request: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        header, body = HANDLERS[request["type"]](request, data)
    except DocumentFailed as failure:
        header, body = {"code": failure.error.code, "message": failure.error.message}, b""
    except MemoryError:
        return {"code": "parse_memory"}, b""
    except Exception:  # noqa: BLE001 - a process's boundary; what a library says may hold the document's text
        return {"code": "parser_crashed"}, b""
    return header | {"spent": _peak_bytes() > SPENT_BYTES}, body


def _peak_bytes() -> int:
    # Not ru_maxrss: that is inherited from a larger parent, through fork and exec.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
    return 0


if __name__ == "__main__":
    main(sys.argv[1:])
