"""Vectors of texts that were encoded before, so that a repeated query costs no forward pass.

One cache belongs to one loaded model: model, revision, precision and device never change in a process, so its keys are
owner, prompt and text. It keeps raw vectors; dimensions and scaling are applied to them anew for each request.

A cached text is answered sooner. So that nobody can measure what others have asked for, a vector is found by its owner
alone, unless the cache is `shared`.
"""

import hashlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tasks.model.encoder import TextItem
from tasks.unshown import unshown


@unshown("text")
class TextKey(NamedTuple):
    """What the raw vector depends on, and for whom it is the same: "" for all callers."""

    prompt_name: str | None
    text: str
    owner: str = ""


OVERHEAD_BYTES = 480
"""Of an entry beside the bytes of its vector: the digest, the objects, and its places in the table, at their worst."""


@dataclass(frozen=True, slots=True)
class CachedText:
    """The raw vector of a text, and its lengths.

    Attributes:
        vector: float32 of this machine [dimension], as the model's own modules left it.
        length: tokens after cutting, prompt and special tokens included.
        full_length, full_length_exact: see `TokenizedText`.
        owner: as in its key.
    """

    vector: bytes
    length: int
    full_length: int
    owner: str = ""
    full_length_exact: bool = True

    @property
    def truncated(self) -> bool:
        """Whether the text was cut."""
        return self.full_length > self.length


@dataclass(frozen=True, slots=True)
class CacheState:
    """What a cache has done since it was made: distinct texts of claims that it knew or did not; and what it holds."""

    hits: int
    misses: int
    size_bytes: int


class VectorCache:
    """The texts that were asked for last, in so many bytes. For several threads.

    Args:
        max_bytes: of all entries, what Python needs around them included. 0: it keeps nothing and counts nothing.
        shared: equal texts of all owners are one text, here and within a claim.
    """

    def __init__(self, max_bytes: int, *, shared: bool = False) -> None:
        self._max_bytes = max_bytes
        self._shared = shared
        self._lock = threading.Lock()
        # Not cachetools.LRUCache(getsizeof=): it would save ten lines, keeps two tables more (90 bytes an entry) and
        # adds a text in 7.4 us instead of 2.0.
        self._entries: OrderedDict[bytes, CachedText] = OrderedDict()
        self._size_bytes = 0
        self._hits = 0
        self._misses = 0

    @property
    def keeps(self) -> bool:
        """Whether it keeps anything."""
        return self._max_bytes > 0

    def key(self, item: TextItem) -> TextKey:
        """Texts with equal keys are encoded once."""
        # One string for all entries of an owner, not one for each.
        return TextKey(item.options.prompt_name, item.text, "" if self._shared else sys.intern(item.owner))

    @property
    def state(self) -> CacheState:
        """Counts and size, of one moment."""
        with self._lock:
            return CacheState(self._hits, self._misses, self._size_bytes)

    def find(self, keys: Iterable[TextKey]) -> dict[TextKey, CachedText]:
        """Those of the texts that are known. They are now the last ones to be given up."""
        if not self.keeps:
            return {}
        digests = {key: _digest(key) for key in keys}
        hits: dict[TextKey, CachedText] = {}
        with self._lock:
            for key, digest in digests.items():
                entry = self._entries.get(digest)
                if entry is not None:
                    self._entries.move_to_end(digest)
                    hits[key] = entry
            self._hits += len(hits)
            self._misses += len(digests) - len(hits)
        return hits

    def add(self, texts: Mapping[TextKey, CachedText]) -> None:
        """Keeps these; gives up those that were not asked for the longest."""
        digests = {_digest(key): entry for key, entry in texts.items()}
        with self._lock:
            for digest, entry in digests.items():
                before = self._entries.pop(digest, None)
                if before is not None:
                    self._size_bytes -= _size_bytes(before)
                self._entries[digest] = entry
                self._size_bytes += _size_bytes(entry)
                while self._size_bytes > self._max_bytes:
                    _, oldest = self._entries.popitem(last=False)
                    self._size_bytes -= _size_bytes(oldest)

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._entries.clear()
            self._size_bytes = 0

    def forget(self, owner: str) -> int:
        """Drops what this owner's texts have left, in a shared cache everything; the number of vectors."""
        with self._lock:
            gone = [digest for digest, entry in self._entries.items() if self._shared or entry.owner == owner]
            for digest in gone:
                self._size_bytes -= _size_bytes(self._entries.pop(digest))
        return len(gone)


OFF = VectorCache(0)
"""For a caller without one."""


def _digest(key: TextKey) -> bytes:
    # 32 bytes: with fewer, somebody could look for two texts with one digest, and would get one's vector for the other.
    prompt = b"-" if key.prompt_name is None else b"+" + _utf8(key.prompt_name)
    owner = _utf8(key.owner)
    # The lengths first, so that no part can pass for another one.
    lengths = len(owner).to_bytes(4) + len(prompt).to_bytes(4)
    return hashlib.blake2b(lengths + owner + prompt + _utf8(key.text), digest_size=32).digest()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _size_bytes(entry: CachedText) -> int:
    return len(entry.vector) + OVERHEAD_BYTES
