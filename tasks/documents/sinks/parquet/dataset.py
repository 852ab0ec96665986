"""A dataset as its writers see it: the present version, and how it is replaced."""

import time
from dataclasses import replace

from tasks.errors import DatasetDeleted, NotStored
from tasks.ledger import datasets
from tasks.ledger.datasets import GRACE_S, Catalog, Part, Retired, Version
from tasks.ledger.ingestions import FOLDER
from tasks.ledger.storage import Storage


class Dataset:
    """One dataset of one owner. `anonymous`: it is named by the ingestion that loads, and by nobody else.

    `ingestion`: who loads; "" for somebody whom it does not concern that a dataset is deleted and made again.
    """

    def __init__(
        self, storage: Storage, owner: str, name: str, *, anonymous: bool = False, ingestion: str = ""
    ) -> None:
        self._storage = storage
        self._owner = owner
        self._name = name
        self._anonymous = anonymous
        self._ingestion = ingestion
        self._last: Version | None = None
        self.folder = datasets.dataset_folder(owner, name)

    def present(self) -> Version:
        """The present version; of one that was deleted, too. Raises `StorageUnavailable`: it cannot be known."""
        self._last = datasets.present(self._storage, self._owner, self._name, self._last)
        return self._last

    def require_same(self, catalog: Catalog) -> None:
        """Whoever sees a dataset first for an ingestion keeps its id beside the ingestion's other objects.

        Raises:
            DatasetDeleted: this is another dataset than the one that the ingestion has seen, or none.
            StorageUnavailable, DiskFull: it cannot be known.
        """
        if not self._ingestion:
            return
        name = f"{FOLDER}/{self._ingestion}/dataset"
        kept = catalog.id if catalog.exists else ""
        try:
            same = self._storage.read(name) == kept.encode()
        except NotStored:
            same = not kept or self._storage.create(name, kept.encode())
        if not same:
            raise DatasetDeleted(
                f"The dataset {self._name!r} was deleted while this ingestion was loading into it. Documents that it "
                "had found or loaded there before are gone. Begin a new ingestion.",
                param="sink.dataset",
            )

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
            id=known.id if known.exists else datasets.new_dataset_id(),
            created_ms=known.created_ms,
            dimension=dimension if filled else 0,
            vectors=vectors if filled else "",
            next_part=following,
            parts=tuple(numbered),
            retired=(*recent, *gone),
            anonymous=self._anonymous and (known.anonymous or not known.exists),
        )
        if not datasets.advance(self._storage, present, catalog):
            return False
        self.require_same(replace(catalog, version=known.version + 1))
        return True
