"""A dataset and its versions: which catalog is the present one, and how it is replaced."""

import secrets
import time
from dataclasses import dataclass, replace

from tasks.errors import NotStored
from tasks.ledger.dataset_operations import move_dataset, read_dataset
from tasks.ledger.datasets import (
    GRACE_S,
    Catalog,
    Part,
    Pointer,
    Retired,
    catalog_name,
    dataset_folder,
    newest_catalog,
    read_catalog,
)
from tasks.ledger.executor import Ledger
from tasks.ledger.storage import Storage

_TRIES = 5
_FENCE_BYTES = 8


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a dataset. `pointer`: None before the first one."""

    pointer: Pointer | None
    catalog: Catalog


class Dataset:
    """One dataset of one owner."""

    def __init__(self, storage: Storage, ledger: Ledger, owner: str, name: str) -> None:
        self._storage = storage
        self._ledger = ledger
        self._owner = owner
        self._name = name
        self._last: Version | None = None
        self.folder = dataset_folder(owner, name)

    def present(self) -> Version:
        """The present version.

        Raises:
            RedisUnavailable, StorageUnavailable: it cannot be known.
            NotStored: somebody deleted its catalog.
        """
        for _ in range(_TRIES):
            pointer = self._ledger.run(read_dataset(self._owner, self._name)) or self._recovered()
            if pointer is None:
                return Version(None, Catalog(self._owner, self._name))
            if self._last is not None and self._last.pointer == pointer:
                return self._last
            try:
                self._last = Version(pointer, read_catalog(self._storage, pointer))
            except NotStored:
                continue  # a sweep deleted it, because the dataset has moved on; or really somebody else did
            return self._last
        raise NotStored(f"The catalog of the dataset {self._name!r} is not in the storage: somebody else deleted it.")

    def move(self, present: Version, parts: list[Part], dimension: int) -> bool:
        """Makes these parts the next version; whether that succeeded: not if somebody else has moved the dataset.

        Parts with a number below zero are new and get their numbers here. Raises like `present`; nobody knows then
        whether it has been moved.
        """
        known = present.catalog
        numbered, following = [], known.next_part
        for part in parts:
            numbered.append(part if part.number >= 0 else replace(part, number=following))
            following += part.number < 0
        now_ms = time.time_ns() // 1_000_000
        staying = {part.receipts for part in numbered}
        # The sweep deletes them after the grace. It may be late, so they are remembered for longer.
        recent = [gone for gone in known.retired if gone.at_ms > now_ms - 2 * GRACE_S * 1000]
        gone = [Retired(part, now_ms) for part in known.parts if part.receipts not in staying]
        catalog = replace(
            known,
            version=known.version + 1,
            dimension=dimension if any(part.rows for part in numbered) else 0,
            next_part=following,
            parts=tuple(numbered),
            retired=(*recent, *gone),
        )
        pointer = Pointer(catalog.version, catalog_name(self.folder, catalog.version, new_fence()))
        self._storage.write(pointer.catalog, catalog.to_bytes())
        if self._ledger.run(move_dataset(self._owner, self._name, present.pointer, pointer)):
            self._last = Version(pointer, catalog)
            return True
        # Of a version that never was, and a Redis that loses everything would go on with it (`newest_catalog`).
        self._storage.delete(pointer.catalog)
        return False

    def _recovered(self) -> Pointer | None:
        """The newest version in the storage, made the present one: Redis has lost it, or there is none yet."""
        found = newest_catalog(self._storage, self._owner, self._name)
        if found is None:
            return None
        self._ledger.run(move_dataset(self._owner, self._name, None, found[0]))
        return self._ledger.run(read_dataset(self._owner, self._name))


def new_fence() -> str:
    """16 hexadecimal digits that no other object of a dataset has in its name."""
    return secrets.token_hex(_FENCE_BYTES)
