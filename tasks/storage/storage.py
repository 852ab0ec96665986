"""Storage: the place for what is too large for Redis. Files of users, parts of batches, pages of ingestions.

`EMBEDQ_STORAGE_URL` names it: a folder that all roles share (`file:///var/lib/embedq`), or a bucket (`s3://bucket/prefix`,
`gs://…`, `az://…`). What is written becomes visible whole and for good, or not at all. Names are ours, never a user's.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, Self

from tasks.errors import NotStored
from tasks.storage.bucket import Bucket
from tasks.storage.folder import LocalFolder

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


class Writer(Protocol):
    """Appends to an object that nobody sees yet. `size_bytes`: what has been written so far."""

    size_bytes: int

    def write(self, data: bytes) -> None:
        """Appends. Raises `DiskFull`, and `StorageUnavailable` for anything else that the place refuses."""


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

    def __init__(
        self, place: LocalFolder | Bucket, proof: Proof | None = None, moved: Callable[[], None] = lambda: None
    ) -> None:
        self._place = place
        self._proof = proof
        self._moved = moved

    @classmethod
    def open(cls, url: str, *, make: bool = True) -> Self:
        """The storage at a URL. A local folder is created, for its owner only, if it is not there.

        `make`: False to leave that to `make`. A local folder that is not there cannot be used before.

        Raises:
            StorageUnavailable: it cannot be, or the URL is not understood; the message names the setting.
        """
        path = LocalFolder.path_of(url)
        opened = cls(Bucket.open(url) if path is None else LocalFolder(path))
        if make:
            opened.make()
        return opened

    def make(self) -> None:
        """Creates a local folder that is not there."""
        self._place.make()

    def proved(self, proof: Proof) -> "Storage":
        """The same place, which is asked for its proof before something is written or said to be missing."""
        return Storage(self._place, proof, self._moved)

    def reporting(self, moved: Callable[[], None]) -> "Storage":
        """The same place for someone who is watched: `moved` is called now and then while an object is uploaded."""
        return Storage(self._place, self._proof, moved)

    def writing(self, name: str) -> AbstractContextManager[Writer]:
        """A writer of a new object, in place of an older one with this name.

        At the end of the block the object becomes visible, and survives a loss of power; after an exception in the
        block there is nothing, or what was there before.

        Raises:
            DiskFull: there is no room; nothing is visible.
        """
        if self._proof is not None:
            self._proof.before_writing()
        return self._place.writing(_checked(name), self._moved)

    def write(self, name: str, data: bytes) -> None:
        """Stores an object whole; raises like `writing`."""
        with self.writing(name) as writer:
            writer.write(data)

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
        return self._chunks(_checked(name), first, size, chunk_bytes)

    def _chunks(self, name: str, first: int, size: int | None, chunk_bytes: int) -> Iterator[bytes]:
        end = float("inf") if size is None else first + size
        while first < end:
            wanted = int(min(chunk_bytes, end - first))
            data = self.read(name, first, wanted)
            if data:
                yield data
            if len(data) < wanted:
                return
            first += wanted

    def delete(self, name: str, go_on: Callable[[], object] = lambda: None) -> None:
        """Removes an object, or with a "/" at the end everything below. What is not there is fine.

        `go_on` is called before each deletion below, and ends them by what it raises.
        """
        checked = _checked(name.removesuffix("/"))
        if name.endswith("/"):
            self._place.delete_below(checked, go_on)
        else:
            self._place.delete(checked)

    def delete_all(self, names: Iterable[str], go_on: Callable[[], object] = lambda: None) -> None:
        """Removes objects, in a bucket a thousand with a request. What is not there is fine.

        `go_on` is called before each deletion, of one file or of a thousand objects, and ends them by what it raises.
        """
        self._place.delete_all(map(_checked, names), go_on)

    def stored(self, folder: str) -> Iterator[Stored]:
        """Everything below a folder, "" for all, in no particular order; nothing if there is no such folder."""
        for name, size_bytes, modified_ms in self._place.below(folder and _checked(folder.removesuffix("/"))):
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
