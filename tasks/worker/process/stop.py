"""What a Celery parent and its child tell one another. Celery itself does not tell a child about a shutdown."""

import ctypes
import mmap
import os
import signal
from collections.abc import Iterable
from typing import NoReturn, Self

from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

_TEXT_BYTES, _SLOTS = 2048, 64


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
    """

    loaded: int
    beats: int
    turns: int
    dropped: int
    failed_loads: int
    _stop: int
    _exit_code: int
    _failure: bytes
    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("loaded", "beats", "turns", "dropped", "failed_loads", "_stop", "_exit_code")
        ),
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

    def forget_child(self) -> None:
        """The child has died: nothing of it is to be waited for."""
        self.loaded = self.beats = 0
        for slot in self._in_hand:
            slot.value = b""


def _cut(words: str) -> bytes:
    data = words.encode()
    return data if len(data) < _TEXT_BYTES else data[: _TEXT_BYTES - 1].rpartition(b" ")[0]
