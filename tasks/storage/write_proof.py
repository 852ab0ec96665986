"""Whether the storage takes parts again, after it did not: asked with a write, so that no model works for nothing.

Asked beside the streams: a bucket that hangs answers after many seconds, and they have queries to serve.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TypeAlias
from uuid import uuid4

from tasks.errors import EmbedqError
from tasks.storage.storage import Storage

PROBE_EVERY_S = 0.5
"""Behind the end of an attempt. Less than the pause behind a claim that could not be finished."""
MAX_PROBE_BYTES = 16 * 2**20
_PROVEN_AT_MOST = 1000
_AT_ONCE = 4

Attempt: TypeAlias = Callable[[], None]


class WriteProof:
    """Doubts the storage from what it refused until a part as large could be written, folder by folder.

    Used by all streams of a process. `storage` raises an `EmbedqError` while it cannot be opened; `aside` runs an
    attempt, by default in a thread of its own.
    """

    def __init__(
        self,
        storage: Callable[[], Storage],
        clock: Callable[[], float] = time.monotonic,
        aside: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._aside = aside or _in_a_thread
        self._lock = threading.Lock()
        self._size = 0
        self._failed_in = ""
        self._proven: set[str] = set()
        self._under_way: set[str] = set()
        self._next_at: dict[str, float] = {}
        self.away_since: float | None = None
        """Unix seconds of the first failure behind which nothing was written; None while the storage is believed in."""

    def missed(self, folder: str, size_bytes: int = 1) -> None:
        """Rows of the folder could not be read, or no part of this size written: no folder is believed in any more."""
        with self._lock:
            self._size = min(max(size_bytes, self._size, 1), MAX_PROBE_BYTES)
            self._failed_in = folder
            self.away_since = self.away_since or time.time()
            self._proven.clear()
            self._next_at = {folder: self._clock() + PROBE_EVERY_S}

    def holds(self, folder: str) -> bool:
        """Whether parts can be written into the folder, as far as is known. Returns at once.

        False while that is being found out; ask again later, or nobody finds out.
        """
        with self._lock:
            if not self._size or folder in self._proven:
                return True
            early = self._clock() < self._next_at.get(folder, 0.0)
            if early or folder in self._under_way or len(self._under_way) >= _AT_ONCE:
                return False
            self._under_way.add(folder)
            size_bytes = self._size
        self._aside(lambda: self._ask(folder, size_bytes))
        return False

    def _ask(self, folder: str, size_bytes: int) -> None:
        held = False
        try:
            _write_and_delete(self._storage(), folder, size_bytes)
            held = True
        except EmbedqError:
            pass  # the stream that met the outage first has said so
        finally:
            with self._lock:
                self._under_way.discard(folder)
                # An attempt may take longer than the pause, so the pause begins here.
                self._next_at[folder] = self._clock() + PROBE_EVERY_S
                if held and size_bytes >= self._size:
                    self._believe(folder)

    def _believe(self, folder: str) -> None:
        self.away_since = None
        self._proven.add(folder)
        # A folder whose batch has ended meanwhile is never asked about again: doubts may last, the set must not grow.
        if folder == self._failed_in or len(self._proven) > _PROVEN_AT_MOST:
            self._size = 0
            self._proven.clear()
            self._next_at.clear()


def _write_and_delete(storage: Storage, folder: str, size_bytes: int) -> None:
    name = f"{folder}/parts/probe.{uuid4().hex}"
    storage.write(name, os.urandom(size_bytes))  # zeros would fit on a disk that compresses
    with contextlib.suppress(EmbedqError):  # the write was the proof; who may not delete can store parts all the same
        storage.delete(name)


def _in_a_thread(attempt: Attempt) -> None:
    threading.Thread(target=attempt, name="row-probe", daemon=True).start()
