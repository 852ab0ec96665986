"""Whose a storage is: the same random id in both, written together once. The cleanup deletes only where they agree.

A Redis that has lost its data, or is the wrong one, knows nothing of what the storage holds: to its cleanup
all of it would be named by nothing.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TypeVar

from tasks.errors import NotStored
from tasks.ledger.executor import Ledger
from tasks.ledger.operations import Operation
from tasks.storage.storage import Storage

T = TypeVar("T")

OBJECT = "storage-id"
"""The object with the storage's id. Its name is in no folder that is cleaned up."""

NOT_OURS = (
    "nothing is deleted from the storage (EMBEDQ_STORAGE_URL): it is not the one that this Redis (EMBEDQ_REDIS_URL) "
    "knows. Is one of them the wrong one, or has Redis lost its data? What Redis does not know would be deleted after "
    "a day. To allow that, start a documents worker once with EMBEDQ_ADOPT_STORAGE=%s"
)
"""For the log, with the storage's id."""

_FOLDERS = ("files", "batches", "ingestions", "datasets", "catalogs")
"""An object in one of them is somebody's."""

_ID_BYTES = 16
_ID_CHARS = 2 * _ID_BYTES


def new_id() -> str:
    """32 hexadecimal digits."""
    return secrets.token_hex(_ID_BYTES)


def id_of(storage: Storage) -> str | None:
    """The id in the storage; None before it has one. Raises `StorageUnavailable`."""
    with suppress(NotStored):
        return storage.read(OBJECT).decode()
    return None


def give_id(storage: Storage, storage_id: str) -> None:
    """Writes the id into the storage; raises like `Storage.write`."""
    storage.write(OBJECT, storage_id.encode())


def give_first_id(storage: Storage, id_in_redis: str) -> None:
    """Gives a storage without an id one: `id_in_redis` if it is empty.

    Where it is not, some other Redis knew what is in it: perhaps that of a version without ids. It gets an id that no
    Redis has, and is nobody's until it is adopted. Raises like `Storage.write`.
    """
    empty = not any(True for folder in _FOLDERS for _ in storage.stored(folder))
    if id_of(storage) is None:  # asked again: whoever wrote those objects has given it one before
        give_id(storage, id_in_redis if empty else new_id())


def redis_id(given: str = "", *, replace: bool = False) -> Operation[str]:
    """The id in Redis, "" for none. `given` becomes it if there is none; with `replace` also if there is another."""
    return Operation("storage_id", "", (given, int(replace)), lambda reply: str(reply.decode()))


def is_ours(storage: Storage, ledger: Ledger) -> bool:
    """Whether Redis and storage belong together. Two that have never met another one do from now on, if it is empty.

    Raises:
        StorageUnavailable, RedisUnavailable: it cannot be known.
    """
    stored = id_of(storage)  # first: Redis has its id before any storage gets it
    if stored is not None:
        return ledger.run(redis_id()) == stored
    id_in_redis = ledger.run(redis_id(new_id()))
    give_first_id(storage, id_in_redis)
    return id_of(storage) == id_in_redis


def confirmed(storage: Storage, ledger: Ledger, doomed: Iterable[Sequence[T]]) -> Iterator[T]:
    """What may be deleted of what records, read for each piece, do not keep: nothing from a Redis that lost them.

    It is asked for each piece again, after its records were read: they may be lost at any time. Raises like `is_ours`.
    """
    for piece in doomed:
        if piece and not is_ours(storage, ledger):
            return
        yield from piece


def adopt(storage: Storage, ledger: Ledger, storage_id: str) -> bool:
    """Makes the storage this Redis's, if it still has this id; whether they belong together now.

    Both get another id: whoever forgets to take the permission back has given it once, and another Redis that was using
    the storage deletes nothing from it any more. Several may adopt at the same time. Raises like `is_ours`.
    """
    if id_of(storage) == storage_id:
        following = sha256(storage_id.encode()).hexdigest()[:_ID_CHARS]
        ledger.run(redis_id(following, replace=True))
        give_id(storage, following)
    return is_ours(storage, ledger)
