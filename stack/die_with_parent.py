"""Becomes a role that does not outlive its supervisor, even if the supervisor is killed with -9.

Run by path as `die_with_parent.py SUPERVISOR_PID COMMAND…`. It asks the kernel for a SIGTERM at the parent's death,
then execs. It is a program of its own because code between fork and exec (`preexec_fn`) can deadlock.
"""

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>; survives exec, and fires when the *thread* that forked us ends
_COMMAND_NOT_FOUND = 127


def main(supervisor_pid: int, command: list[str]) -> NoReturn:
    """Replaces this process by `command`; exits with 127 when there is no such program."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != supervisor_pid:  # it died before the kernel was asked
        sys.exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_COMMAND_NOT_FOUND)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
