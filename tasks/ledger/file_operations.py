"""Ledger operations of files: values like those in `operations`, each one script, each harmless to repeat."""

from collections.abc import Sequence
from typing import Any

from tasks.ledger import results
from tasks.ledger.files import FilePage, FileRecord, Order, Quota, created_ms
from tasks.ledger.operations import Argument, Operation

MAX_PAGE = 500
"""Files that one call of a script looks at: Redis serves nobody else meanwhile."""


def put_file(record: FileRecord, quota: Quota | None = None) -> Operation[FileRecord]:
    """Makes a stored object a file of its owner; the record as it is now. `quota`: None for what is not refused.

    A record with this id that is there already stays as it is and is returned: what a repetition stored under another
    name is garbage, and the sweep finds it. It expires as long after this call as it would after `created_ms`: that is
    of another clock than Redis's.

    Raises on reading:
        QuotaExceeded: the owner's files would be too many or too large. Nothing was changed.
        StorageFull: Redis is full.
    """

    def read(reply: list[Any]) -> FileRecord:
        _require_room(reply, quota)
        return _record(record.id, reply[1])

    return Operation("file_write", "", _put_arguments(record, quota), read)


def put_batch_file(record: FileRecord, batch_id: str) -> Operation[bool]:
    """Gives a file that a batch made to its owner, as `put_file`; False when the batch has ended: nothing was changed.

    Without a quota: hours of work are not thrown away because there is no room for another file. The end is looked for
    in the same script, because the owner may delete the file from then on, and it must not come back.

    Raises on reading:
        StorageFull: Redis is full.
    """
    arguments = (*_put_arguments(record, None), batch_id)
    return Operation("file_write", "", arguments, lambda reply: bool(reply[0] == b"ok"))


def _put_arguments(record: FileRecord, quota: Quota | None) -> tuple[Argument, ...]:
    r = record
    return (
        "put",
        r.id,
        r.owner,
        r.filename,
        r.purpose,
        r.size_bytes,
        r.created_ms,
        0 if r.expires_ms is None else max(1, r.expires_ms - r.created_ms),
        r.stored,
        *quota_arguments(quota),
    )


def quota_arguments(quota: Quota | None) -> tuple[int, int]:
    """A quota as scripts take it: bytes and files, -1 for any number."""
    return (quota.max_bytes, quota.max_files) if quota else (-1, -1)


def reserve_file(owner: str, file_id: str, size_bytes: int, quota: Quota, for_ms: int) -> Operation[None]:
    """Counts an upload on its way as so many bytes, for so long or until its record is made. Again: as so many now.

    Raises on reading:
        QuotaExceeded: a file of this size would not be taken. Nothing was changed.
        StorageFull: Redis is full.
    """
    arguments = ("reserve", file_id, owner, size_bytes, quota.max_bytes, quota.max_files, for_ms)
    return Operation("file_write", "", arguments, lambda reply: _require_room(reply, quota))


def release_file(owner: str, file_id: str) -> Operation[None]:
    """An upload has come to nothing and no longer counts."""
    return Operation("file_write", "", ("release", file_id, owner), lambda _: None)


def read_file(file_id: str) -> Operation[FileRecord | None]:
    """The record; None when there is none (any more)."""
    return Operation("file_read", "", (file_id,), lambda reply: _record(file_id, reply[0]) if reply[0] else None)


def read_files(file_ids: Sequence[str]) -> Operation[list[FileRecord | None]]:
    """The records of several ids, in the order asked for."""
    return Operation(
        "file_read",
        "",
        tuple(file_ids),
        lambda reply: [_record(i, flat) if flat else None for i, flat in zip(file_ids, reply, strict=True)],
    )


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
        files = tuple(_record(file_id.decode(), flat) for file_id, flat in rows)
        return FilePage(files, following.decode() if following else None)

    cursor_ms = created_ms(after) if after else None
    arguments = (owner, purpose or "", after or "", cursor_ms or 0, min(limit, MAX_PAGE), MAX_PAGE, order)
    return Operation("file_list", "", arguments, read)


def delete_file(file_id: str) -> Operation[FileRecord | None]:
    """Removes the record; what it was, so that the object can be deleted too, or None when there was none."""
    return Operation(
        "file_write", "", ("delete", file_id), lambda reply: _record(file_id, reply[1]) if reply[1] else None
    )


def _require_room(reply: list[Any], quota: Quota | None) -> None:
    if reply[0] == b"quota" and quota:
        raise quota.refused(reply)


def _record(file_id: str, flat: list[Any]) -> FileRecord:
    return FileRecord.from_fields(file_id, results.pairs(flat))
