"""What a Celery parent and its child tell one another. Celery itself does not tell a child about a shutdown."""

import ctypes
import mmap
import os
import signal
import time
from collections.abc import Iterable
from typing import Any, NoReturn, Self

from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

_TEXT_BYTES, _SLOTS, _DEATH_BYTES = 2048, 64, 64


class Stopping(Exception):
    """A stop was asked for in the middle of some work. Not an error: a clean stop leaves that work with it."""


class SharedPage(ctypes.Structure):
    """Memory that a parent shares with the children that it forks afterwards. Each value has one writer at a time.

    What a killed child wrote last stays: the parent says of it what it worked on.

    Attributes:
        loaded: whether the child has become ready.
        beats: how often the child's heartbeat turned; 0 when none is to be waited for.
        turns: how often the parent's loop did.
        dropped: how many messages since the parent's start were no bells.
        failed_loads: how many children have died since one became ready.
        deaths: how many have died at all.
    """

    loaded: int
    beats: int
    turns: int
    dropped: int
    failed_loads: int
    deaths: int
    _stop: int
    _exit_code: int
    _died_at: float
    _died_of: bytes
    _failure: bytes
    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("loaded", "beats", "turns", "dropped", "failed_loads", "deaths", "_stop", "_exit_code")
        ),
        ("_died_at", ctypes.c_double),
        ("_died_of", ctypes.c_char * _DEATH_BYTES),
        ("_failure", ctypes.c_char * _TEXT_BYTES),
        ("_in_hand", ctypes.c_char * _TEXT_BYTES * _SLOTS),
    )

    @classmethod
    def make(cls) -> Self:
        """A page on which nothing stands."""
        return cls.from_buffer(mmap.mmap(-1, ctypes.sizeof(cls)))

    def stop(self) -> None:
        """Asks for a stop. Async-signal safe: it writes a few bytes."""
        self._stop = 1

    def stopping(self) -> bool:
        """Whether a stop was asked for, in this process or its parent."""
        return self._stop == 1

    def refuse(self, message: str, exit_code: int) -> None:
        """Leaves the reason for which this worker cannot serve, and the code with which its parent is to exit."""
        self._failure = _cut(message)
        self._exit_code = exit_code

    def refuse_in_child(self, message: str) -> NoReturn:
        """Ends this process and its parent, which tells the reason and exits with the code for configuration errors."""
        self.refuse(message, CONFIGURATION_EXIT_CODE)
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(CONFIGURATION_EXIT_CODE)

    def refusal(self) -> tuple[str, int] | None:
        """What was left so; None: nothing."""
        return (self._failure.decode(errors="replace"), self._exit_code) if self._exit_code else None

    def work_on(self, stream: int, task_ids: Iterable[str]) -> None:
        """What the stream of this number has in hand: as many ids as there is room for."""
        self._in_hand[stream % _SLOTS].value = _cut(" ".join(task_ids))

    def in_hand(self) -> tuple[str, ...]:
        """Ids of the tasks that the child works on, or worked on when it died."""
        return tuple(dict.fromkeys(name.decode() for slot in self._in_hand for name in slot.value.split()))

    def died(self, how: str) -> None:
        """A child has died, unasked."""
        self.deaths += 1
        self._died_at, self._died_of = time.time(), how.encode()[: _DEATH_BYTES - 1]

    def last_death(self) -> dict[str, Any]:
        """How many have died, when and of what the last one: fields of `Worker`."""
        if not self.deaths:
            return {}
        return {"deaths": self.deaths, "died_at": self._died_at, "died_of": self._died_of.decode(errors="replace")}

    def forget_child(self) -> None:
        """The child has died: nothing of it is to be waited for."""
        self.loaded = self.beats = 0
        for slot in self._in_hand:
            slot.value = b""


def _cut(words: str) -> bytes:
    data = words.encode()
    return data if len(data) < _TEXT_BYTES else data[: _TEXT_BYTES - 1].rpartition(b" ")[0]
