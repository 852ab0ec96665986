"""What parses strangers' documents cannot read the secrets in the environment of the worker."""

import subprocess
import sys

from tests.source_tree import CHECKOUT

PROGRAM = """
import ctypes, os, subprocess, sys
from tasks.ingestion.__main__ import hide_environment

PR_GET_DUMPABLE = 3
ask = ctypes.CDLL(None).prctl
hide_environment()
print(ask(PR_GET_DUMPABLE), flush=True)
if os.fork() == 0:
    print(ask(PR_GET_DUMPABLE), flush=True)
    os._exit(0)
os.wait()
again = "import ctypes; print(ctypes.CDLL(None).prctl(3))"
subprocess.run([sys.executable, "-c", again], check=True)
"""


def test_a_worker_and_its_forks_are_closed_and_what_it_starts_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=CHECKOUT)

    assert done.stdout.split() == ["0", "0", "1"]
