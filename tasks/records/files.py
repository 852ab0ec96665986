"""Files: a record each. Their bytes are in the storage, under the record's `stored` name.

A file that is being uploaded has a record already, in the state `uploading`: it counts against the quota before its
bytes are there. Nobody sees it until it is whole, and it goes ten minutes after the last bytes came.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Literal

from tasks.ledger.ids import RecordIds
from tasks.ledger.redis_keys import LITTER
from tasks.ledger.scripts import Operation
from tasks.records import store
from tasks.records.store import AnyRecord, Order, ReadRecord, RecordPage, Room, Standing

UPLOAD_MS = 600_000
"""Life of the record of an upload from which nothing comes. A reader of the storage takes no longer for a part."""
MAX_FILES = 1_000_000
"""Of one owner. Each takes Redis's memory, however few bytes it has."""

_IDS = RecordIds("file-")
_IN_NAME = re.compile("file-[0-9a-f]{32}")
new_file_id = _IDS.new
file_id_from = _IDS.made_from
"""Its moment must be the record's own: the list of files relies on it."""
created_ms = _IDS.created_ms


class Purpose(StrEnum):
    """What a file is for. All but the last may be uploaded; OpenAI's names."""

    ASSISTANTS = "assistants"
    BATCH = "batch"
    EVALS = "evals"
    FINE_TUNE = "fine-tune"
    USER_DATA = "user_data"
    VISION = "vision"
    BATCH_OUTPUT = "batch_output"


class FileRecord(AnyRecord):
    """One file of one owner.

    Attributes:
        id: `file-` and 32 hexadecimal digits.
        owner: id of the owner it belongs to; nobody else sees it.
        filename: as the client called it; never used as a path.
        size_bytes: of the stored object; while it is uploaded, what counts for it.
        created_ms: Unix milliseconds.
        expires_ms: likewise; None: when it is deleted.
        stored: name in the storage.
    """

    KIND: ClassVar = "file"

    id: str
    owner: str
    filename: str
    purpose: Purpose
    size_bytes: int
    created_ms: int
    expires_ms: int | None = None
    stored: str
    state: Literal["uploading", "stored"] = "stored"

    @property
    def record_id(self) -> str:
        """Its id."""
        return self.id

    @property
    def is_stored(self) -> bool:
        """Whether all of it is there."""
        return self.state == "stored"

    def standing(self) -> Standing:
        """It counts by number and by bytes."""
        lists = (self.owner if self.is_stored else uploads_of(self.owner),)
        return Standing(self.owner, {"stored": self.size_bytes, "files": 1}, lists, litter=self.stored)

    @property
    def life_ms(self) -> int:
        """How long Redis keeps it, by its own clock, which is another one than that of `created_ms`."""
        if not self.is_stored:
            return UPLOAD_MS
        return store.FOR_EVER if self.expires_ms is None else max(1, self.expires_ms - self.created_ms)


def uploads_of(owner: str) -> str:
    """The list of what an owner uploads."""
    return f"@uploading:{owner}"


def stored_name(owner: str, file_id: str) -> str:
    """Where the bytes of an uploaded file go. What a batch makes lies in its own folder (tasks.batches)."""
    return f"{owner}/{file_id}"


def file_id_of(stored: str) -> str:
    """The id of the file in a stored name; "" where it is no file's."""
    found = _IN_NAME.search(stored)
    return found[0] if found else ""


def due_litter(now_ms: int, limit: int) -> Operation[list[str]]:
    """Stored names of files whose records are gone for a minute, the oldest first.

    Promised: where a replica does not know of that yet, nothing is deleted because of it.
    """
    command = ("ZRANGEBYSCORE", LITTER, "-inf", now_ms, "LIMIT", 0, limit)
    return Operation(lambda replies: [name.decode() for name in replies[0]], commands=(command,), promised=True)


def postpone_litter(name: str, until_ms: int) -> Operation[object]:
    """It cannot be deleted now, and is not due before others that may be."""
    return Operation(lambda replies: replies[0], commands=(("ZADD", LITTER, "XX", until_ms, name),))


def litter_done(name: str) -> Operation[object]:
    """It is deleted."""
    return Operation(lambda replies: replies[0], commands=(("ZREM", LITTER, name),))


def put_file(record: FileRecord, room: Room = store.ANY_ROOM, *, change: str = "") -> Operation[str]:
    """Makes the record of a file; one with this id that is there already stays as it is. Raises as `store.create`."""
    return store.create(record, room, for_ms=record.life_ms, change=change)


def read_file(file_id: str) -> Operation[FileRecord | None]:
    """The record; None when there is none (any more), or not yet."""
    return store.mapped(read_files([file_id]), lambda found: found[0])


def read_files(file_ids: Sequence[str]) -> Operation[list[FileRecord | None]]:
    """The records of several ids, in the order asked for."""

    def whole(found: list[ReadRecord[FileRecord] | None]) -> list[FileRecord | None]:
        return [one.record if one and one.record and one.record.is_stored else None for one in found]

    return store.mapped(store.read(FileRecord, file_ids), whole)


def list_files(
    owner: str, *, after: str | None = None, limit: int = store.MOST, order: Order = Order.DESC
) -> Operation[RecordPage[FileRecord]]:
    """Up to `limit` of the owner's files, by time of creation, behind the file `after`, which may be gone by now."""
    return store.listed(FileRecord, owner, after=after or "", limit=limit, order=order)


def delete_file(file_id: str) -> Operation[FileRecord | None]:
    """Removes the record; what it was, None when there was none. The sweep removes its bytes a minute later."""
    return store.remove(FileRecord, file_id)
