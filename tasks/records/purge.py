"""Everything that one owner has is removed, in small steps that may be repeated and may end anywhere.

Redis has no list of all that an owner has: tasks that nobody lists, results, aliases. So `sweep_owner` goes through its
keys. An object is removed before the record that names it: a process that dies in between leaves a record, and the next
round finds that again. The owner has nothing any more when a whole round has met nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.ledger.scripts import Operation
from tasks.records import datasets
from tasks.records.creation import RecordKind
from tasks.storage.storage import Storage

KEYS_AT_ONCE = 500
"""Of one call: Redis serves nobody else meanwhile."""


@dataclass(frozen=True, slots=True)
class PurgedFile:
    """A file whose object is to be removed, and then its record."""

    id: str
    stored: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PurgedRecord:
    """A batch or an ingestion that has ended now. `busy`: a worker may still write objects for it."""

    kind: RecordKind
    id: str
    busy: bool

    @property
    def folder(self) -> str:
        """Where its objects are."""
        return f"{self.kind.plural}/{self.id}/"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a step has met.

    Attributes:
        over: it has looked at the last keys; the next one begins a new round.
        clean: this round has met nothing of the owner up to here.
        tasks: number of those that it has forgotten.
        files, records: what is left to be removed of them.
    """

    over: bool
    clean: bool
    tasks: int
    files: Sequence[PurgedFile]
    records: Sequence[PurgedRecord]


def sweep_owner(owner: str) -> Operation[Sweep]:
    """Looks at the next `KEYS_AT_ONCE` keys, about, forgets the owner's tasks and ends batches and ingestions.

    From the first step on the owner has the mark of a purged one.
    """

    def read(reply: list[Any]) -> Sweep:
        over, clean, tasks, files, records = reply
        return Sweep(
            bool(over),
            bool(clean),
            tasks,
            [PurgedFile(name.decode(), stored.decode(), int(size)) for name, stored, size in _threes(files)],
            [
                PurgedRecord(RecordKind(kind.decode()), name.decode(), bool(busy))
                for kind, name, busy in _threes(records)
            ],
        )

    return Operation("purge_sweep", "", (owner, KEYS_AT_ONCE), read)


def _threes(flat: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    return zip(flat[::3], flat[1::3], flat[2::3], strict=True)


def remove_record(record: PurgedRecord) -> Operation[bool]:
    """Removes the record of a batch or of an ingestion whose objects are gone; whether it was there."""
    return Operation("purge_record", "", (record.id, record.kind.value, record.kind.plural), bool)


def close_account(owner: str) -> Operation[None]:
    """Removes what is kept of an owner who has nothing: lists, sums, turns.

    Promised for all that was removed before: a replica that has this has that too.
    """
    return Operation("purge_close", "", (owner,), lambda _: None, promised=True)


def remove_folder(storage: Storage, folder: str) -> int:
    """Removes all objects below; their bytes. Raises `StorageUnavailable`."""
    size_bytes = sum(stored.size_bytes for stored in storage.stored(folder))
    storage.delete(folder)
    return size_bytes


def remove_datasets(storage: Storage, owner: str) -> tuple[int, int]:
    """Removes an owner's datasets with all their versions; their number and bytes. Raises `StorageUnavailable`.

    No reader is waited for, as deleting one dataset does: nobody may read them any more.
    """
    number = sum(1 for _ in datasets.datasets_of(storage, owner))
    return number, sum(remove_folder(storage, folder) for folder in datasets.folders_of(owner))
