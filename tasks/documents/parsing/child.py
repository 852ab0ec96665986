"""The process that parses: `python -m tasks.documents.parsing.child PARENT_PID MEMORY_BYTES TIMEOUT_S`.

Reads documents from its standard input and answers each on its original standard output, until the input ends. If it
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.frames import LENGTHS, frame, frame_from_parsed, header_from_bytes
from tasks.documents.parsing.limits import SPENT_BYTES
from tasks.documents.parsing.parsers import BY_MEDIA_TYPE

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>; fires when the *thread* that forked us ends
_MAX_OPEN_FILES = 64
GRACE_S = 5  # the parent kills in time; this is for children whose parent is gone
_KIB = 1024


def main(arguments: Sequence[str]) -> None:
    """Parses until its input ends; exits early after a document for which it grew too large."""
    parent_pid, memory_bytes, timeout_s = int(arguments[0]), int(arguments[1]), float(arguments[2])
    confine(parent_pid, memory_bytes)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    send(answers, frame({"ready": True}))
    while request := received(sys.stdin.buffer):
        header, body = request
        signal.setitimer(signal.ITIMER_REAL, timeout_s + GRACE_S)
        answer, spent = _answer(str(header["type"]), body)
        send(answers, answer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if spent:
            return


def confine(parent_pid: int, memory_bytes: int) -> None:
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


def _answer(media_type: str, data: bytes) -> tuple[list[bytes], bool]:
    try:
        parsed = BY_MEDIA_TYPE[media_type].parse(data)
        spent = peak_bytes() > SPENT_BYTES
        return frame_from_parsed(parsed, spent=spent), spent
    except DocumentFailed as failure:
        return frame({"code": failure.error.code, "message": failure.error.message}), False
    except MemoryError:
        return frame({"code": "parse_memory", "spent": True}), True
    except Exception:  # noqa: BLE001 - a process's boundary; what a library says may hold the document's text
        return frame({"code": "parser_crashed", "spent": True}), True


def peak_bytes() -> int:
    """The most memory that this process has had."""
    # Not ru_maxrss: that is inherited from a larger parent, through fork and exec.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * _KIB
    return 0


def received(requests: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """Header and body of the next message; None at the end of the input."""
    start = requests.read(LENGTHS.size)
    if len(start) < LENGTHS.size:
        return None
    header_bytes, body_bytes = LENGTHS.unpack(start)
    return header_from_bytes(requests.read(header_bytes)), requests.read(body_bytes)


def send(answers: BinaryIO, pieces: Sequence[bytes]) -> None:
    """Writes an answer."""
    answers.writelines(pieces)
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
