"""Datasets: the Parquet parts that ingestions of one owner have loaded under one name.

A catalog is an object in the storage that names all parts of one version of a dataset, and never changes. Redis knows
which catalog is the present one, so a reader sees a version whole, and a writer that dies leaves nothing but garbage.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Self

import orjson

from tasks.errors import NotStored
from tasks.ledger.storage import Storage

FOLDER = "datasets"
GRACE_S = 3600.0
"""Parts that a newer version has replaced can be read for so long: a reader may be half-way through a list of them."""

_OWNER_CHARS = 16
_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_-]{0,127}")


@dataclass(frozen=True, slots=True)
class Pointer:
    """Which catalog is the present one: its version and its name in the storage."""

    version: int
    catalog: str


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a dataset.

    Attributes:
        number: never used twice within a dataset, whatever happens to the part.
        stored: name of its Parquet object; "" for a part without rows, which has receipts of empty documents alone.
        receipts: name of the object that says which documents are in it.
    """

    number: int
    stored: str
    receipts: str
    rows: int
    documents: int
    size_bytes: int

    @property
    def name(self) -> str:
        """What users call it. It stands for the same bytes for ever."""
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class Retired:
    """A part that is in the dataset no more, since `at_ms` (Unix milliseconds)."""

    part: Part
    at_ms: int


@dataclass(frozen=True, slots=True)
class Catalog:
    """One version of a dataset.

    Attributes:
        dimension: of all vectors in it; 0 before there are any.
        next_part: the lowest number that no part has had.
        parts: of this version, each document in one of them.
        retired: those that earlier versions had and that may still be read.
    """

    owner: str
    dataset: str
    version: int = 0
    dimension: int = 0
    next_part: int = 0
    parts: Sequence[Part] = ()
    retired: Sequence[Retired] = ()

    @property
    def listed(self) -> list[Part]:
        """Parts with rows, as users see them, in the order of their numbers."""
        return sorted((part for part in self.parts if part.stored), key=lambda part: part.number)

    def find(self, name: str) -> Part | None:
        """The part that users call so, also one of those retired; None when there is none."""
        known = [*self.parts, *(gone.part for gone in self.retired)]
        return next((part for part in known if part.stored and part.name == name), None)

    def to_bytes(self) -> bytes:
        """For the storage."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`."""
        known: Mapping[str, Any] = orjson.loads(data)
        return cls(
            known["owner"],
            known["dataset"],
            known["version"],
            known["dimension"],
            known["next_part"],
            tuple(Part(**part) for part in known["parts"]),
            tuple(Retired(Part(**gone["part"]), gone["at_ms"]) for gone in known["retired"]),
        )


def dataset_folder(owner: str, dataset: str) -> str:
    """Where all of a dataset is in the storage."""
    owned = sha256(owner.encode()).hexdigest()[:_OWNER_CHARS]
    if _PLAIN.fullmatch(dataset):
        return f"{FOLDER}/{owned}/{dataset}"
    # The storage knows no capitals, and "." at the beginning hides a name. A plain name holds no ".".
    plain = re.sub(r"[^a-z0-9_-]", "-", dataset.lower())
    return f"{FOLDER}/{owned}/x{plain}.{sha256(dataset.encode()).hexdigest()[:_OWNER_CHARS]}"


def catalog_name(folder: str, version: int, fence: str) -> str:
    """Name of a catalog in the storage."""
    return f"{folder}/catalog-{version:08d}.{fence}.json"


def catalog_version(name: str) -> int | None:
    """The version in the name of a catalog; None for the name of something else."""
    found = re.search(r"/catalog-(\d{8,})\.[0-9a-f]+\.json$", name)
    return int(found[1]) if found else None


def read_catalog(storage: Storage, pointer: Pointer) -> Catalog:
    """The catalog that a pointer names.

    Raises:
        NotStored: it is gone, because the dataset has moved on: read the pointer again.
        StorageUnavailable: the storage cannot be read.
    """
    return Catalog.from_bytes(storage.read(pointer.catalog))


def newest_catalog(storage: Storage, owner: str, dataset: str) -> tuple[Pointer, Catalog] | None:
    """The newest version of a dataset of which every part is in the storage; None when there is none.

    Only for a dataset of which Redis knows no pointer: it lists all objects of the dataset, and a writer that is about
    to move the dataset on may have written its catalog already. Who finds one makes it the present one, with
    `move_dataset` from None, and then reads the pointer again: another may have been first.

    Raises:
        StorageUnavailable: the storage cannot be read.
    """
    names = {found.name for found in storage.stored(dataset_folder(owner, dataset))}
    versions = [(version, name) for name in names if (version := catalog_version(name)) is not None]
    for version, name in sorted(versions, reverse=True):
        pointer = Pointer(version, name)
        try:
            catalog = read_catalog(storage, pointer)
        except NotStored:
            continue
        if all(part.receipts in names and (not part.stored or part.stored in names) for part in catalog.parts):
            return pointer, catalog
    return None
