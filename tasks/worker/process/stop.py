"""What a Celery parent and its child tell one another. Celery itself does not tell a child about a shutdown."""

import mmap
import os
import signal
import struct
from collections.abc import Iterable
from typing import NoReturn

from worker_config.settings import CONFIGURATION_EXIT_CODE

_STOP, _LOADED, _EXIT_CODE, _BEATS, _TURNS, _DROPPED = range(6)
_NUMBER = struct.Struct("@q")
_TEXTS_AT, _TEXT_BYTES = 64, 2048
_FAILURE, _SLOTS = 0, 8


class Stopping(Exception):
    """A stop was asked for in the middle of some work. Not an error: a clean stop leaves that work with it."""


class SharedPage:
    """Memory that a parent shares with the children that it forks afterwards. Each value has one writer at a time.

    What a killed child wrote last stays: the parent says of it what it worked on.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _TEXTS_AT + (1 + _SLOTS) * _TEXT_BYTES)

    def stop(self) -> None:
        """Asks for a stop. Async-signal safe: it writes a few bytes."""
        self._set(_STOP, 1)

    def stopping(self) -> bool:
        """Whether a stop was asked for, in this process or its parent."""
        return self._get(_STOP) == 1

    @property
    def loaded(self) -> bool:
        """Whether the child has become ready."""
        return self._get(_LOADED) == 1

    @loaded.setter
    def loaded(self, value: bool) -> None:
        self._set(_LOADED, int(value))

    def beat(self) -> None:
        """The child's heartbeat turned."""
        self._set(_BEATS, self._get(_BEATS) + 1)

    def beats(self) -> int | None:
        """How often it did; None when none is to be waited for."""
        return self._get(_BEATS) or None

    def turn(self) -> None:
        """The parent's loop turned."""
        self._set(_TURNS, self._get(_TURNS) + 1)

    def turns(self) -> int:
        """How often it did."""
        return self._get(_TURNS)

    @property
    def dropped(self) -> int:
        """How many messages since the parent's start were no bells."""
        return self._get(_DROPPED)

    @dropped.setter
    def dropped(self, number: int) -> None:
        self._set(_DROPPED, number)

    def refuse(self, message: str, exit_code: int) -> None:
        """Leaves the reason for which this worker cannot serve, and the code with which its parent is to exit."""
        self._write(_FAILURE, message)
        self._set(_EXIT_CODE, exit_code)

    def refuse_in_child(self, message: str) -> NoReturn:
        """Ends this process and its parent, which tells the reason and exits with the code for configuration errors."""
        self.refuse(message, CONFIGURATION_EXIT_CODE)
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(CONFIGURATION_EXIT_CODE)

    def refusal(self) -> tuple[str, int] | None:
        """What was left so; None: nothing."""
        code = self._get(_EXIT_CODE)
        return (self._read(_FAILURE), code) if code else None

    def work_on(self, stream: int, task_ids: Iterable[str]) -> None:
        """What the stream of this number has in hand: as many ids as there is room for."""
        self._write(1 + stream % _SLOTS, " ".join(task_ids))

    def in_hand(self) -> tuple[str, ...]:
        """Ids of the tasks that the child works on, or worked on when it died."""
        return tuple(dict.fromkeys(name for slot in range(_SLOTS) for name in self._read(1 + slot).split()))

    def forget_child(self) -> None:
        """The child has died: nothing of it is to be waited for."""
        self._set(_LOADED, 0)
        self._set(_BEATS, 0)
        for slot in range(_SLOTS):
            self._write(1 + slot, "")

    def _get(self, which: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, which * _NUMBER.size)[0]
        return number

    def _set(self, which: int, value: int) -> None:
        _NUMBER.pack_into(self._memory, which * _NUMBER.size, value)

    def _read(self, place: int) -> str:
        at = _TEXTS_AT + place * _TEXT_BYTES
        return self._memory[at : at + _TEXT_BYTES].split(b"\0", 1)[0].decode(errors="replace")

    def _write(self, place: int, text: str) -> None:
        at, data = _TEXTS_AT + place * _TEXT_BYTES, text.encode()
        if len(data) >= _TEXT_BYTES:
            data = data[: _TEXT_BYTES - 1].rpartition(b" ")[0]
        self._memory[at : at + len(data) + 1] = data + b"\0"
