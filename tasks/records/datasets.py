"""Datasets: the Parquet parts that ingestions of one owner have loaded under one name.

A catalog is an object in the storage that names all parts of one version of a dataset, and never changes. Versions are
numbered, the newest is the present one, and the storage gives a number once. So a reader sees a version whole, of two
writers who begin with the same version one succeeds, and one that dies leaves only objects that no catalog names:
`embedq storage unknown` lists them. The storage alone knows a dataset; no Redis that is lost, or goes back, changes it.
"""

import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Self

import orjson

from tasks.errors import NotStored, StorageUnavailable
from tasks.storage.storage import Storage, Stored

PARTS = "datasets"
CATALOGS = "catalogs"
GRACE_S = 3600.0
"""What a newer version has replaced can be read for so long: a reader may be half-way through a list of parts."""

_OWNER_CHARS, _ETAG_CHARS = 16, 32
_FENCE_BYTES, _ID_BYTES = 8, 16
_TRIES = 5
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_-]{0,127}")


@dataclass(frozen=True, slots=True)
class DatasetPart:
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

    @property
    def etag(self) -> str:
        """Never the same for other bytes: stored names are never used twice."""
        return sha256(f"{self.stored} {self.size_bytes}".encode()).hexdigest()[:_ETAG_CHARS]


@dataclass(frozen=True, slots=True)
class Retired:
    """A part that is in the dataset no more, since `at_ms` (Unix milliseconds)."""

    part: DatasetPart
    at_ms: int


@dataclass(frozen=True, slots=True)
class Catalog:
    """One version of a dataset.

    Attributes:
        version: 0 before the first one, which is stored nowhere.
        id: of the dataset: another one made later under the same name has another.
        created_ms, written_ms: Unix milliseconds, of the dataset and of this version, by the clock of who wrote it.
        token: of this version alone.
        dimension: of all vectors in it; 0 before there are any.
        vectors: in words what makes them comparable (`Stamp.vectors`); "" before there are any.
        next_part: the lowest number that no part has had.
        parts: of this version, each document in one of them.
        retired: those that earlier versions had and that may still be read.
        anonymous: it is named by the one ingestion that made it, and goes with that one's record.
        deleted: its owner has deleted it. A version without parts that stays until everything else of it is gone.
    """

    owner: str
    dataset: str
    version: int = 0
    id: str = ""
    created_ms: int = 0
    written_ms: int = 0
    token: str = ""
    dimension: int = 0
    vectors: str = ""
    next_part: int = 0
    parts: Sequence[DatasetPart] = ()
    retired: Sequence[Retired] = ()
    anonymous: bool = False
    deleted: bool = False

    @property
    def exists(self) -> bool:
        """Whether there is a dataset."""
        return self.version > 0 and not self.deleted

    @property
    def listed(self) -> list[DatasetPart]:
        """Parts with rows, as users see them, in the order of their numbers."""
        return sorted((part for part in self.parts if part.stored), key=lambda part: part.number)

    @property
    def rows(self) -> int:
        """Of all parts."""
        return sum(part.rows for part in self.parts)

    @property
    def documents(self) -> int:
        """With chunks or without, of all parts."""
        return sum(part.documents for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Of all parts."""
        return sum(part.size_bytes for part in self.parts)

    def find(self, name: str) -> DatasetPart | None:
        """The part that users call so, also one of those retired; None when there is none."""
        # What was retired before this dataset was made is of a deleted one, and waits only for the sweep.
        retired = (gone.part for gone in self.retired if gone.at_ms > self.created_ms)
        readable = () if self.deleted else (*self.parts, *retired)
        return next((part for part in readable if part.stored and part.name == name), None)

    def to_bytes(self) -> bytes:
        """For the storage."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`."""
        fields: Mapping[str, Any] = orjson.loads(data)
        return cls(
            **{
                **fields,
                "parts": tuple(DatasetPart(**part) for part in fields["parts"]),
                "retired": tuple(Retired(DatasetPart(**gone["part"]), gone["at_ms"]) for gone in fields["retired"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Version:
    """A version as it is stored. `stored`: None before the first one."""

    stored: Stored | None
    catalog: Catalog


def new_fence() -> str:
    """16 hexadecimal digits that no other object of a dataset has in its name."""
    return secrets.token_hex(_FENCE_BYTES)


def new_dataset_id() -> str:
    """32 hexadecimal digits."""
    return secrets.token_hex(_ID_BYTES)


def is_dataset_name(text: str) -> bool:
    """Whether a dataset may be called so: 1 to 128 letters, digits, "_", "-" and "."."""
    return _NAME.fullmatch(text) is not None


def dataset_folder(owner: str, dataset: str) -> str:
    """Where the parts of a dataset are in the storage."""
    return f"{PARTS}/{_place(owner, dataset)}"


def catalog_folder(owner: str, dataset: str) -> str:
    """Where its catalogs are."""
    return f"{CATALOGS}/{_place(owner, dataset)}"


def folders_of(owner: str) -> tuple[str, str]:
    """Where the storage has all catalogs and parts of an owner, catalogs first: without them nobody finds the parts."""
    return f"{CATALOGS}/{_owned(owner)}/", f"{PARTS}/{_owned(owner)}/"


def catalog_version(name: str) -> int | None:
    """The version in the name of a catalog; None for the name of something else."""
    number = re.search(r"/(\d{8,})\.json$", name)
    return int(number[1]) if number else None


def newest_of(catalogs: Sequence[Stored]) -> Stored | None:
    """The one with the highest version; None where there is none."""
    return max(catalogs, key=lambda catalog: catalog_version(catalog.name) or 0, default=None)


def present(storage: Storage, owner: str, dataset: str, known: Version | None = None) -> Version:
    """The newest version, or one of version 0 where nothing was ever loaded. `known`: is taken if it is still that.

    Raises:
        StorageUnavailable: it cannot be known.
    """
    for _ in range(_TRIES):
        newest = newest_of(_catalogs(storage, owner, dataset))
        if newest is None:
            return Version(None, Catalog(owner, dataset))
        if known is not None and known.stored == newest:
            return known
        try:
            return Version(newest, Catalog.from_bytes(storage.read(newest.name)))
        except NotStored:
            continue  # it has moved on, or was deleted, in between
    raise StorageUnavailable("The newest catalog of a dataset is listed and cannot be read.", retry_after_s=10)


def advance(storage: Storage, present: Version, following: Catalog) -> bool:
    """Makes `following` the version after `present`; whether it is: not if somebody else has moved the dataset.

    Where there is no dataset, `following` has a new id, or "" to be given one.
    Raises like `Storage.create`; nobody knows then whether it has been moved.
    """
    catalog = present.catalog
    following = replace(following, version=catalog.version + 1, token=new_fence(), written_ms=_now_ms())
    if not catalog.exists:
        # Not before the deletion of one of this name, by the clock of another host.
        created_ms = max([following.written_ms, *(gone.at_ms for gone in following.retired)])
        following = replace(following, id=following.id or new_dataset_id(), created_ms=created_ms)
    folder = catalog_folder(catalog.owner, catalog.dataset)
    name = f"{folder}/{following.version:08d}.json"
    if not (_is_there(storage, present) and storage.create(name, following.to_bytes())):
        return False
    if _is_next(storage, present, following):
        return True
    # The number had been given and was free again: whoever takes longer than the grace comes too late.
    storage.delete(name)
    return False


def delete_dataset(storage: Storage, owner: str, dataset: str) -> bool:
    """Deletes a dataset; whether there was one. The sweep removes its objects, after the grace.

    Raises like `present` and `advance`; a repetition is harmless.
    """
    while True:
        version = present(storage, owner, dataset)
        if not version.catalog.exists:
            return False
        if delete_version(storage, version):
            return True


def delete_version(storage: Storage, version: Version) -> bool:
    """Deletes a dataset if this is its present version; whether it was. Raises like `advance`."""
    catalog = version.catalog
    gone = tuple(Retired(part, _now_ms()) for part in catalog.parts)
    empty = replace(catalog, parts=(), retired=(*catalog.retired, *gone), dimension=0, vectors="", deleted=True)
    return advance(storage, version, empty)


def held_bytes(storage: Storage, owner: str) -> int:
    """Of all parts of an owner's datasets, those that a newer version has just replaced too. One listing."""
    return sum(part.size_bytes for part in storage.stored(f"{PARTS}/{_owned(owner)}"))


def datasets_of(storage: Storage, owner: str, after: str | None = None) -> Iterator[Catalog]:
    """An owner's datasets behind the one named `after`, in an order of their own; raises `StorageUnavailable`."""
    folders: dict[str, list[Stored]] = {}
    first = None if after is None else catalog_folder(owner, after)
    for stored in storage.stored(f"{CATALOGS}/{_owned(owner)}"):
        folder = stored.name.rpartition("/")[0]
        if first is None or folder > first:
            folders.setdefault(folder, []).append(stored)
    for _, catalogs in sorted(folders.items()):
        newest = newest_of(catalogs)
        if newest is None:
            continue
        try:
            catalog = Catalog.from_bytes(storage.read(newest.name))
        except NotStored:  # it was deleted since they were listed
            continue
        if catalog.exists:
            yield catalog


def _is_next(storage: Storage, before: Version, mine: Catalog) -> bool:
    if before.stored is None:
        return present(storage, mine.owner, mine.dataset).catalog.id == mine.id
    # Catalogs are deleted in the order of their versions. While this one is there, its successor was never deleted.
    return _is_there(storage, before)


def _is_there(storage: Storage, version: Version) -> bool:
    """Whether the sweep has not deleted it. Under its name there may be one of a later dataset."""
    if version.stored is None:
        return True
    try:
        return Catalog.from_bytes(storage.read(version.stored.name)).token == version.catalog.token
    except NotStored:
        return False


def _catalogs(storage: Storage, owner: str, dataset: str) -> list[Stored]:
    objects = storage.stored(catalog_folder(owner, dataset))
    return [stored for stored in objects if catalog_version(stored.name) is not None]


def _place(owner: str, dataset: str) -> str:
    if _PLAIN.fullmatch(dataset):
        return f"{_owned(owner)}/{dataset}"
    # The storage knows no capitals, and "." at the beginning hides a name. A plain name holds no ".".
    plain = re.sub(r"[^a-z0-9_-]", "-", dataset.lower())
    return f"{_owned(owner)}/x{plain}.{sha256(dataset.encode()).hexdigest()[:_OWNER_CHARS]}"


def _owned(owner: str) -> str:
    return sha256(owner.encode()).hexdigest()[:_OWNER_CHARS]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
