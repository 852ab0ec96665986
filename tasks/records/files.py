"""Files as the ledger knows them: a record each. Their bytes are in the storage, under the record's `stored` name."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from tasks.errors import Forbidden
from tasks.ledger import replies
from tasks.ledger.ids import RecordIds
from tasks.ledger.scripts import Argument, Operation

FOLDER = "files"
"""Where all of them are in the storage."""

_IDS = RecordIds("file-")
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


class Order(StrEnum):
    """By time of creation."""

    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of one owner.

    Attributes:
        id: `file-` and 32 hexadecimal digits.
        owner: name of the API key it belongs to; nobody else sees it.
        filename: as the client called it; never used as a path.
        size_bytes: size of the stored object.
        created_ms: Unix milliseconds.
        expires_ms: likewise; None: when it is deleted.
        stored: name in the storage.
    """

    id: str
    owner: str
    filename: str
    purpose: Purpose
    size_bytes: int
    created_ms: int
    expires_ms: int | None
    stored: str

    @classmethod
    def from_reply(cls, file_id: str, flat: Sequence[bytes]) -> Self:
        """From its hash, as scripts reply it."""
        fields = replies.fields_from_reply(flat)
        return cls(
            id=file_id,
            owner=fields["owner"].decode(),
            filename=fields["filename"].decode(),
            purpose=Purpose(fields["purpose"].decode()),
            size_bytes=int(fields["size"]),
            created_ms=int(fields["created"]),
            expires_ms=int(fields["expires"]) or None,
            stored=fields["stored"].decode(),
        )


@dataclass(frozen=True, slots=True)
class FilePage:
    """Some files of one owner in the order asked for. `next`: the cursor for those behind; None at the end."""

    files: tuple[FileRecord, ...]
    next: str | None


def above_quota(bytes_in_all: int, quota_bytes: int | None) -> Forbidden:
    """The error for an owner whose files and datasets would hold so much."""
    return Forbidden(
        "quota_exceeded",
        f"Your files and datasets hold {bytes_in_all:,} bytes with what you send, and {quota_bytes or 0:,} are "
        f"allowed. Delete some first, or send less.",
    )


def stored_name(file_id: str, fence: str = "") -> str:
    """Where a file's bytes go.

    `fence`: of the claim that writes them, so that a worker taken for dead cannot replace what its successor wrote. All
    attempts at a file have one folder.
    """
    return f"{FOLDER}/{file_id}/{fence}" if fence else f"{FOLDER}/{file_id}"


def file_id_of(stored: str) -> str:
    """The id in a stored name."""
    return stored.removeprefix(f"{FOLDER}/").partition("/")[0]


# Ledger operations of files: values like those in `operations`, each one script, each harmless to repeat.

MAX_PAGE = 500
"""Files that one call of a script looks at: Redis serves nobody else meanwhile."""


def put_file(record: FileRecord, quota_bytes: int | None = None) -> Operation[FileRecord]:
    """Makes a stored object a file of its owner; the record as it is now.

    `quota_bytes`: of all files of the owner; None for what is not refused.

    A record with this id that is there already stays as it is and is returned. Redis, whose clock is another one, keeps
    a record for as long after this call as it says to live after `created_ms`.

    Raises on reading:
        Forbidden: the owner's files would be too large. Nothing was changed.
        StorageFull: Redis is full.
    """

    def read(reply: list[Any]) -> FileRecord:
        _require_room(reply, quota_bytes)
        return FileRecord.from_reply(record.id, reply[1])

    return Operation("file_write", "", (), read, _put_arguments(record, quota_bytes), promised=True)


def put_batch_file(record: FileRecord, batch_id: str) -> Operation[bool]:
    """Gives a file that a batch made to its owner, as `put_file`; False when the batch has ended: nothing was changed.

    Without a quota: hours of work are not thrown away because there is no room for another file. The end is looked for
    in the same script, because the owner may delete the file from then on, and it must not come back.

    Raises on reading:
        StorageFull: Redis is full.
    """
    arguments = _put_arguments(record, None, batch=batch_id)
    return Operation("file_write", "", (), lambda reply: bool(reply[0] == b"ok"), arguments, promised=True)


def _put_arguments(record: FileRecord, quota_bytes: int | None, *, batch: str = "") -> dict[str, Argument]:
    r = record
    return _write_arguments(
        "put",
        r.id,
        owner=r.owner,
        filename=r.filename,
        purpose=r.purpose,
        size=r.size_bytes,
        created=r.created_ms,
        for_ms=0 if r.expires_ms is None else max(1, r.expires_ms - r.created_ms),
        stored=r.stored,
        batch=batch,
        max_bytes=quota_argument(quota_bytes),
    )


def _write_arguments(verb: str, file_id: str, **given: Argument) -> dict[str, Argument]:
    """All arguments of the script, whose verbs need some of them each."""
    text: dict[str, Argument] = dict.fromkeys(("owner", "filename", "purpose", "created", "stored", "batch"), "")
    return {"verb": verb, "id": file_id, **text, "size": 0, "for_ms": 0, "max_bytes": -1, **given}


def quota_argument(quota_bytes: int | None) -> int:
    """A quota as scripts take it: -1 is no limit."""
    return -1 if quota_bytes is None else quota_bytes


def require_room(owner: str, size_bytes: int, quota_bytes: int) -> Operation[None]:
    """Asks whether a file of this size would be taken; changes nothing.

    Raises on reading:
        Forbidden: the owner's files would be too large.
    """
    arguments = _write_arguments("room", "", owner=owner, size=size_bytes, max_bytes=quota_bytes)
    return Operation("file_write", "", (), lambda reply: _require_room(reply, quota_bytes), arguments)


def read_file(file_id: str) -> Operation[FileRecord | None]:
    """The record; None when there is none (any more)."""
    return Operation("file_read", "", (file_id,), lambda reply: _record_from_reply(file_id, reply[0]))


def read_files(file_ids: Sequence[str]) -> Operation[list[FileRecord | None]]:
    """The records of several ids, in the order asked for."""

    def read(reply: list[Any]) -> list[FileRecord | None]:
        return [_record_from_reply(file_id, flat) for file_id, flat in zip(file_ids, reply, strict=True)]

    return Operation("file_read", "", tuple(file_ids), read)


def list_files(
    owner: str,
    *,
    purpose: str | None = None,
    after: str | None = None,
    limit: int = MAX_PAGE,
    order: Order = Order.DESC,
) -> Operation[FilePage]:
    """Up to `limit` of the owner's files, by time of creation, beginning behind the file `after`.

    `after` need not exist any more: its id says when it was made. One call looks at no more than `MAX_PAGE` files, so
    it may return fewer than there are: `FilePage.next` says where to go on.
    """

    def read(reply: list[Any]) -> FilePage:
        following, *rows = reply
        files = tuple(FileRecord.from_reply(file_id.decode(), flat) for file_id, flat in rows)
        return FilePage(files, following.decode() if following else None)

    arguments: dict[str, Argument] = {
        "owner": owner,
        "purpose": purpose or "",
        "after": after or "",
        "made_ms": (created_ms(after) if after else None) or 0,
        "limit": min(limit, MAX_PAGE),
        "look": MAX_PAGE,
        "order": order,
    }
    return Operation("file_list", "", (), read, arguments)


def delete_file(file_id: str) -> Operation[FileRecord | None]:
    """Removes the record; what it was, so that the object can be deleted too, or None when there was none."""
    arguments = _write_arguments("delete", file_id)
    # Before the object is deleted: a failover must not bring a record without its object back.
    return Operation(
        "file_write", "", (), lambda reply: _record_from_reply(file_id, reply[1]), arguments, promised=True
    )


def _require_room(reply: list[Any], quota_bytes: int | None) -> None:
    if reply[0] == b"quota":
        raise above_quota(int(reply[1]), quota_bytes)


def _record_from_reply(file_id: str, flat: Sequence[bytes] | None) -> FileRecord | None:
    return FileRecord.from_reply(file_id, flat) if flat else None
