"""What a process that reads Parquet does before it reads anything: it confines itself. And how it reads and answers."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tasks.documents.sources.frames import LENGTHS, header_from_bytes

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>; fires when the *thread* that forked us ends
_MAX_OPEN_FILES = 64
GRACE_S = 5  # the parent kills in time; this is for children whose parent is gone
_KIB = 1024


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
