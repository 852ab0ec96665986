"""What was read of stored objects and may be asked for again, within a limit of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


def room_for_vectors(max_bytes: int) -> int:
    """How much of the memory for everything that is kept may be vectors: three quarters."""
    return max_bytes * 3 // 4


def vector_bytes(rows: int, dimension: int) -> int:
    """Of so many vectors in memory, with their lengths."""
    return rows * (dimension + 1) * 4


@dataclass(slots=True)
class _Entry:
    """`users`: blocks that rely on it. `value`: None until it was read, once, under `reading`."""

    size_bytes: int
    users: int = 0
    value: Any = None
    reading: threading.Lock = field(default_factory=threading.Lock)


class Held:
    """Entries that stay for as long as their block lasts."""

    def __init__(self, entries: Mapping[Hashable, _Entry]) -> None:
        self._entries = entries

    def value(self, key: Hashable, read: Callable[[], T]) -> T:
        """The value of this key. If it is not known yet, one thread reads it and the others wait for that."""
        entry = self._entries[key]
        with entry.reading:
            if entry.value is None:
                entry.value = read()
            value: T = entry.value
            return value


class Kept:
    """Values by key, those that were used last. For several threads.

    Room is taken before a value is read, so that the values never exceed the limit, also while they are read. What
    somebody uses is not given up. Keys name objects that never change, so no value is ever wrong.

    Args:
        max_bytes: of all values.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.size_bytes = 0

    @contextmanager
    def together(self, sizes: Mapping[Hashable, int]) -> Iterator[Held | None]:
        """Room for all of these keys with their bytes, as long as the block lasts. None: they do not fit."""
        entries = self._take(sizes)
        try:
            yield None if entries is None else Held(entries)
        finally:
            self._release(entries or {})

    def value(self, key: Hashable, size_bytes: int, read: Callable[[], T]) -> T:
        """The kept value of this key; otherwise what `read` returns, which is kept if it fits."""
        with self.together({key: size_bytes}) as held:
            return read() if held is None else held.value(key, read)

    def find(self, key: Hashable) -> Any | None:
        """The kept value of this key, which is used once more now; None where there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return None if entry is None else entry.value

    def keep(self, key: Hashable, value: Any, size_bytes: int) -> None:
        """Keeps a value whose size nobody knew before it was read, if it fits."""
        self.value(key, size_bytes, lambda: value)

    def forget(self, which: Callable[[Any], bool]) -> None:
        """Drops the values of the keys that `which` names. Whoever uses one at this moment may finish."""
        with self._lock:
            for key in [key for key in self._entries if which(key)]:
                self._drop(key)

    def _take(self, sizes: Mapping[Hashable, int]) -> dict[Hashable, _Entry] | None:
        with self._lock:
            # There may be 100,000 small entries, and most calls are for one. As few are looked at as can be.
            missing = {key for key in sizes if key not in self._entries}
            needed = sum(sizes[key] for key in missing)
            over = self.size_bytes + needed - self._max_bytes
            dropped = []
            for key, entry in self._entries.items():  # those that were used longest ago come first
                if over <= 0:
                    break
                if not entry.users and key not in sizes:
                    dropped.append(key)
                    over -= entry.size_bytes
            if over > 0:
                return None
            for key in dropped:
                self._drop(key)
            for key in sizes:
                if key in missing:
                    self._entries[key] = _Entry(sizes[key])
                self._entries.move_to_end(key)
                self._entries[key].users += 1
            self.size_bytes += needed
            return {key: self._entries[key] for key in sizes}

    def _release(self, entries: Mapping[Hashable, _Entry]) -> None:
        with self._lock:
            for key, entry in entries.items():
                entry.users -= 1
                if entry.value is None and not entry.users and self._entries.get(key) is entry:  # it could not be read
                    self._drop(key)

    def _drop(self, key: Hashable) -> None:
        self.size_bytes -= self._entries.pop(key).size_bytes
