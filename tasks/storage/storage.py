"""Storage: the place for what is too large for Redis. Files of users, their offset indexes, parts of batches.

`EMBEDQ_STORAGE_URL` names it: a folder that all roles share (`file:///var/lib/embedq`), or a bucket (`s3://bucket/prefix`).
What is written becomes visible whole and for good, or not at all. Names are ours, never a user's.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, Self

from tasks.errors import NotStored
from tasks.storage.bucket import ObjectStore
from tasks.storage.folder import LocalFolder
from tasks.storage.writer import Writer

CHUNK_BYTES = 2**20
_NOTHING = "nothing"
"""Name of an object that nobody stores."""
# Neither "", "." and ".." nor a hidden name, so that no name leads out of the root or to what is being written.
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*(/[a-z0-9_][a-z0-9_.-]*)*")


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored object: its name, its size and when it was written (Unix milliseconds)."""

    name: str
    size_bytes: int
    modified_ms: int


class Proof(Protocol):
    """Says whether this is the storage that all roles share. Its methods raise `StorageUnavailable` where it is not."""

    def before_writing(self) -> None:
        """Something is about to be written."""

    def before_missing(self) -> None:
        """Something is not there. Only in the right storage does that mean that it was deleted."""


class Storage:
    """Objects by name in one place. Synchronous; may be used by several threads, not across a fork.

    All methods raise `StorageUnavailable` when the place cannot be reached or refuses, or is not proved to be the right
    one, and `ValueError` for a name that is not lowercase letters, digits, `_`, `.` and `-` in parts separated by `/`.
    """

    def __init__(self, place: "LocalFolder | ObjectStore", proof: Proof | None = None) -> None:
        self._place = place
        self._proof = proof

    @classmethod
    def open(cls, url: str, *, make: bool = True) -> Self:
        """The storage at a URL. A local folder is created, for its owner only, if it is not there.

        `make`: False to leave that to `make`. A local folder that is not there cannot be used before.

        Raises:
            StorageUnavailable: it cannot be, or the URL is not understood; the message names the setting.
        """
        path = LocalFolder.path_of(url)
        return cls(ObjectStore.open(url) if path is None else LocalFolder.open(path) if make else LocalFolder(path))

    def make(self) -> None:
        """Creates a local folder that is not there."""
        if isinstance(self._place, LocalFolder):
            self._place.make()

    def proved(self, proof: Proof) -> "Storage":
        """The same place, which is asked for its proof before something is written or said to be missing."""
        return Storage(self._place, proof)

    def reporting(self, moved: Callable[[], None]) -> "Storage":
        """The same place for someone who is watched: `moved` is called now and then while an object is uploaded.

        It is called by other threads, must return at once and raise nothing.
        """
        return Storage(self._place.reporting(moved), self._proof)

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """A writer of a new object, in place of an older one with this name.

        At the end of the block the object becomes visible, and survives a loss of power; after an exception in the
        block there is nothing, or what was there before.

        Raises:
            DiskFull: there is no room; nothing is visible.
        """
        self._before_writing()
        with self._place.writing(_checked(name)) as writer:
            yield writer

    def write(self, name: str, data: bytes) -> None:
        """Stores an object whole; raises like `writing`."""
        with self.writing(name) as writer:
            writer.write(data)

    def create(self, name: str, data: bytes) -> bool:
        """Stores a small object under a name that nothing has; whether these bytes are there now: not if others are.

        Of several who try at the same time one succeeds. Whoever must know that it was he puts something of his own
        into the bytes; a repetition after a lost answer finds them.

        Raises:
            DiskFull: there is no room; nothing is visible.
        """
        self._before_writing()
        if self._place.create(_checked(name), data):
            return True
        with suppress(NotStored):
            return self.read(name) == data
        return False

    def read(self, name: str, first: int = 0, size: int | None = None) -> bytes:
        """Bytes `first` to `first + size` (None: to the end); fewer where the object ends before.

        Raises:
            NotStored: nothing has this name.
        """
        with self._missing():
            return self._place.read(_checked(name), first, size)

    def size_bytes(self, name: str) -> int:
        """Its size; raises `NotStored`."""
        with self._missing():
            return self._place.size_bytes(_checked(name))

    def chunks(
        self, name: str, first: int = 0, size: int | None = None, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[bytes]:
        """The same bytes as `read`, in pieces of at most `chunk_bytes`. `NotStored` comes with the first piece."""
        return self._pieces(self._place.chunks(_checked(name), first, size, chunk_bytes))

    def delete(self, name: str) -> None:
        """Removes an object, or with a "/" at the end everything below. What is not there is fine."""
        folder = name.endswith("/")
        checked = _checked(name.removesuffix("/"))
        (self._place.delete_below if folder else self._place.delete)(checked)

    def stored(self, folder: str) -> Iterator[Stored]:
        """Everything below a folder, in no particular order; nothing if there is no such folder."""
        for name, size_bytes, modified_ms in self._place.below(_checked(folder.removesuffix("/"))):
            yield Stored(name, size_bytes, modified_ms)

    def discard_unfinished(self, older_than_s: float) -> int:
        """Removes what writers that died left behind, if it was last written to before that; returns their number."""
        return self._place.discard_unfinished(older_than_s)

    def require(self) -> None:
        """Raises `StorageUnavailable` if the place is not there, or is not proved to be the right one."""
        if self._proof is not None:
            self._proof.before_missing()
        with suppress(NotStored):
            self.read(_NOTHING)

    def _before_writing(self) -> None:
        if self._proof is not None:
            self._proof.before_writing()

    def _pieces(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        with self._missing():
            yield from pieces

    @contextmanager
    def _missing(self) -> Iterator[None]:
        try:
            yield
        except NotStored:
            if self._proof is not None:
                self._proof.before_missing()
            raise


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a name of a stored object: {name!r}")
    return name


__all__ = ["CHUNK_BYTES", "NotStored", "Storage", "Stored", "Writer"]
