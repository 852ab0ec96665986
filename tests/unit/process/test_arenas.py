"""How many arenas malloc makes for many threads."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes, sys, threading
from tasks.process.child import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
everybody = threading.Barrier(8)
def allocate():
    kept = [bytes(100_000) for _ in range(10)]
    everybody.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
ctypes.CDLL(None).malloc_stats()
"""


def arenas(how: str, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.count("Arena ")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_threads_share_two_arenas() -> None:
    assert arenas("own") > 2
    assert arenas("shared") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
@pytest.mark.parametrize(
    "chosen",
    [{"MALLOC_ARENA_MAX": "4"}, {"GLIBC_TUNABLES": "glibc.malloc.check=0:glibc.malloc.arena_max=4"}],
    ids=lambda chosen: next(iter(chosen)),
)
def test_somebodys_own_number_stays(chosen: dict[str, str]) -> None:
    assert arenas("shared", **chosen) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_an_empty_variable_says_nothing() -> None:
    assert arenas("shared", MALLOC_ARENA_MAX="") == 2
