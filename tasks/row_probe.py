"""Whether the storage takes parts again, after it did not: asked with a write, so that no model works for nothing."""

import os
import threading
import time
from collections.abc import Callable
from uuid import uuid4

from tasks.ledger.storage import Storage

PROBE_EVERY_S = 0.5
"""Less than the pause behind a claim that could not be finished: each claim asks once, whatever its units."""
MAX_PROBE_BYTES = 16 * 2**20
_PROVEN_AT_MOST = 1000


class WriteProof:
    """Doubts the storage from a part that could not be written until one as large could be, folder by folder.

    Used by all streams of a process.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._size = 0
        self._failed_in = ""
        self._proven: set[str] = set()
        self._next_at: dict[str, float] = {}

    def missed(self, folder: str, size_bytes: int) -> None:
        """A part of this size could not be written into the folder: no folder is believed in any more."""
        with self._lock:
            self._doubt(folder, min(max(size_bytes, 1), MAX_PROBE_BYTES))

    def holds(self, storage: Storage, folder: str) -> bool:
        """Whether parts can be written into the folder, as far as is known. False while it is too early to ask again.

        Raises:
            StorageUnavailable, DiskFull: no.
        """
        with self._lock:  # one stream asks, the others hear what it found
            if not self._size or folder in self._proven:
                return True
            if self._clock() < self._next_at.get(folder, 0.0):
                return False
            self._next_at[folder] = self._clock() + PROBE_EVERY_S
            _write_and_delete(storage, folder, self._size)
            self._believe(folder)
            return True

    def _doubt(self, folder: str, size_bytes: int) -> None:
        self._size, self._failed_in = size_bytes, folder
        self._proven.clear()
        self._next_at = {folder: self._clock() + PROBE_EVERY_S}

    def _believe(self, folder: str) -> None:
        self._proven.add(folder)
        # A folder whose batch has ended meanwhile is never asked about again: doubts may last, the set must not grow.
        if folder == self._failed_in or len(self._proven) > _PROVEN_AT_MOST:
            self._size = 0
            self._proven.clear()
            self._next_at.clear()


def _write_and_delete(storage: Storage, folder: str, size_bytes: int) -> None:
    name = f"{folder}/parts/probe.{uuid4().hex}"
    storage.write(name, os.urandom(size_bytes))  # zeros would fit on a disk that compresses
    storage.delete(name)
