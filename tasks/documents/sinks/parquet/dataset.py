"""A dataset as its writers see it: the present version, and how it is replaced."""

import time
from dataclasses import replace

from tasks.ledger import datasets
from tasks.ledger.datasets import GRACE_S, Catalog, Part, Retired, Version
from tasks.ledger.storage import Storage


class Dataset:
    """One dataset of one owner. `anonymous`: it is named by the ingestion that loads, and by nobody else."""

    def __init__(self, storage: Storage, owner: str, name: str, *, anonymous: bool = False) -> None:
        self._storage = storage
        self._owner = owner
        self._name = name
        self._anonymous = anonymous
        self._last: Version | None = None
        self.folder = datasets.dataset_folder(owner, name)

    def present(self) -> Version:
        """The present version; of one that was deleted, too. Raises `StorageUnavailable`: it cannot be known."""
        self._last = datasets.present(self._storage, self._owner, self._name, self._last)
        return self._last

    def move(self, present: Version, parts: list[Part], dimension: int, vectors: str) -> bool:
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
        filled = any(part.rows for part in numbered)
        catalog = Catalog(
            known.owner,
            known.dataset,
            id=known.id,
            created_ms=known.created_ms,
            dimension=dimension if filled else 0,
            vectors=vectors if filled else "",
            next_part=following,
            parts=tuple(numbered),
            retired=(*recent, *gone),
            anonymous=self._anonymous and (known.anonymous or not known.exists),
        )
        return datasets.advance(self._storage, present, catalog)
