"""Which storage is the right one: the same random id lies in the storage and in Redis.

Whoever first stores something writes the id to both. From then on a role whose storage has another id, or none, has
another `EMBEDQ_STORAGE_URL` than the others, or its disk is empty: what it does not find was not deleted, and what it
wrote nobody would find. An empty Redis takes the id that it finds, because datasets outlive it.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from tasks.errors import NotStored, StorageUnavailable
from tasks.ledger.redis_keys import STORAGE
from tasks.ledger.scripts import Command, Operation
from tasks.storage.storage import Storage

FOLDER = "storage-ids"
"""Of empty objects, whose names are the storage's ids: of several roles that come first in the same moment, each writes
one. Redis knows one of them, and the storage is its own if that one is there."""

_RETRY_AFTER_S = 10
_ID_BYTES = 16

RunId: TypeAlias = Callable[[Operation[str]], str]
"""Runs an operation; raises `RedisUnavailable`."""


def ids_of(storage: Storage) -> list[str]:
    """The ids in the storage; none before it was used. Raises `StorageUnavailable`."""
    return sorted(stored.name.removeprefix(f"{FOLDER}/") for stored in storage.stored(FOLDER))


def redis_id(given: str = "", *, replace: bool = False) -> Operation[str]:
    """The id in Redis, "" for none. `given` becomes it if there is none; with `replace` also if there is another."""
    store: tuple[Command, ...] = (
        ((("SET", STORAGE, given) if replace else ("SET", STORAGE, given, "NX")),) if given else ()
    )
    return Operation(lambda replies: (replies[-1] or b"").decode(), commands=(*store, ("GET", STORAGE)))


class StorageProof:
    """Compares both ids; see `tasks.storage.storage.Proof`. May be used by several threads.

    Args:
        plain: the storage without a proof.
        run: runs an operation of the ledger.
    """

    def __init__(self, plain: Storage, run: RunId) -> None:
        self._plain = plain
        self._run = run
        self._bound = self._made = False

    def before_writing(self) -> None:
        """The first time: writes the id to both if neither has one.

        Raises:
            StorageUnavailable: this is not the storage that Redis knows.
            RedisUnavailable: it cannot be known.
        """
        if not self._bound:
            self._compare(self._run(redis_id()) or self._run(redis_id(self.own_id())))
            self._bound = True

    def before_missing(self) -> None:
        """Raises as `before_writing`; stores nothing."""
        self._compare(self._run(redis_id()))

    def _compare(self, known: str) -> None:
        if not known or self._has(known):  # "": nothing was ever stored
            if not self._made:  # once, and not before: roles that run would take an empty mount point for the disk
                self._plain.make()
            self._made = True
        else:
            is_what = "belongs to another Redis" if ids_of(self._plain) else "is empty, or was never used"
            raise StorageUnavailable(
                "The storage (EMBEDQ_STORAGE_URL) of this role is not the one that Redis (EMBEDQ_REDIS_URL) knows: it "
                f"{is_what}. Give all roles the same EMBEDQ_STORAGE_URL; work waits meanwhile. Where this one is right "
                "and the other one is lost: `embedq storage accept`.",
                retry_after_s=_RETRY_AFTER_S,
            )

    def _has(self, known: str) -> bool:
        with suppress(NotStored):
            self._plain.size_bytes(f"{FOLDER}/{known}")
            return True
        return False

    def own_id(self) -> str:
        """An id of the storage, which has one from now on."""
        self._plain.make()
        found = ids_of(self._plain)
        if found:
            return found[0]
        new = secrets.token_hex(_ID_BYTES)
        self._plain.write(f"{FOLDER}/{new}", b"")
        return new


def open_proved(url: str, run: RunId) -> Storage:
    """The storage at a URL, as every role uses it: nothing is written to a wrong one, and nothing is missing there.

    Raises:
        StorageUnavailable: it cannot be opened, or is not the one that Redis knows.
        RedisUnavailable: it cannot be known.
    """
    plain = Storage.open(url, make=False)
    storage = plain.proved(StorageProof(plain, run))
    storage.require()
    return storage


def accept(storage: Storage, run: RunId) -> str:
    """Makes this the storage that Redis knows, by the word of a person; its id. `storage`: without a proof."""
    return run(redis_id(StorageProof(storage, run).own_id(), replace=True))
