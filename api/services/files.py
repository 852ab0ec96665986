"""Files: their bytes are in the storage, their records in the ledger."""

import asyncio
import time
import unicodedata
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import orjson

from api.async_storage import AsyncStorage
from api.paging import ListPage, read_page
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.files import File, NewFile
from api.services.owned import own, room_of
from api.uploads import Content, Upload, too_large
from tasks.errors import EmbedqError, Invalid, NotFound, Overloaded, Unavailable
from tasks.ledger.client import AsyncLedger
from tasks.records import files, store
from tasks.records.api_keys import Key
from tasks.records.files import FileRecord, Purpose, created_ms, new_file_id, stored_name
from tasks.records.store import ANY_ROOM, Order, ReadRecord, Room, new_change
from tasks.wire.json_limits import has_more_parts
from worker_config.settings import Settings

_AT_ONCE = 250
"""Files that one reply of Redis has: it holds the event loop."""
_MAX_FILENAME_CHARS = 255
_RENEW_S = 60.0
"""Between two renewals of what is being uploaded, of the minutes that Redis keeps it for."""
_PROBED_LINES = 50_000
"""As many requests as a batch may have. A file that has none in so many lines cannot be a batch."""


class FileService:
    """The files of this service. What takes an id raises `NotFound` where the caller has no such file."""

    def __init__(self, ledger: AsyncLedger, storage: AsyncStorage, settings: Settings) -> None:
        self._ledger = ledger
        self._storage = storage
        self._settings = settings
        self.max_bytes = settings.max_file_bytes

    @asynccontextmanager
    async def reserved(self, key: Key) -> "AsyncIterator[Reserved]":
        """Room for a file of the caller's, which nobody has after the block unless `create` has stored the file."""
        place = Reserved(self._ledger, key, self._settings)
        try:
            yield place
        finally:
            await place.give_back()

    async def create(self, upload: Upload, place: "Reserved") -> File:
        """Stores a file. When this returns it is stored whole; after an error nothing of it is.

        Raises:
            RequestError: the field that is wrong; `Refused`, `Invalid`: the file, for its purpose.
            Forbidden, StorageFull, StorageUnavailable, DiskFull: nothing of it is stored.
            RedisUnavailable: it is not known whether it has a record.
        """
        form = NewFile.read(upload.fields)
        purpose, expires_in_s = Purpose(form.purpose), form.expires_in_s()
        await asyncio.to_thread(_check, upload, purpose, self._settings)
        await place.hold(upload.size_bytes, exactly=True)
        await place.during(self._storage.store(place.file.stored, upload.file))
        made_ms = place.file.created_ms
        record = place.file.model_copy(
            update={
                "filename": upload.filename,
                "purpose": purpose,
                "expires_ms": None if expires_in_s is None else made_ms + expires_in_s * 1000,
                "state": "stored",
            }
        )
        if not await place.keep(record):
            with suppress(Unavailable):
                await self._storage.delete(record.stored)  # nothing leads to it any more
            raise _stood_still()
        return File.model_validate(record)

    async def list(self, key: Key, page: PagePlace, purpose: str | None, order: Order) -> Page[File]:
        """A page of the caller's files, by age. `purpose`: of this one only; None: of any. Raises `Invalid`."""
        if page.after is not None and created_ms(page.after) is None:
            raise Invalid("invalid_value", "after must be the id of a file.", param="after")

        async def read(after: str | None, limit: int) -> ListPage[FileRecord]:
            at_once = _AT_ONCE if purpose else min(limit, _AT_ONCE)
            page = await self._ledger.run(files.list_files(key.owner, after=after, limit=at_once, order=order))
            fitting = [one.record for one in page.records if one.record and purpose in {None, one.record.purpose}]
            until = page.records[-1].id if page.records else None
            return ListPage(fitting[:limit], until, page.more)

        # One more than asked for says whether there is more.
        records = (await read_page(read, after=page.after, limit=page.limit + 1)).items
        listed = await asyncio.to_thread(lambda: [*map(File.model_validate, records[: page.limit])])
        return Page[File].of(listed, more=len(records) > page.limit)

    async def read(self, key: Key, file_id: str) -> File:
        """The record of a file."""
        return File.model_validate(await self._own(key, file_id))

    async def content(self, key: Key, file_id: str) -> Content:
        """Where its bytes are."""
        file = await self._own(key, file_id)
        # An id never gets other bytes.
        return Content(file.stored, file.size_bytes, tag=file.id, filename=file.filename, gone=_unknown())

    async def delete(self, key: Key, file_id: str) -> None:
        """Deletes a file for good. Raises `StorageUnavailable` where the storage refuses; the file stays then."""
        file = await self._own(key, file_id)
        # The bytes first: where the storage refuses, the caller hears it, and the record still leads to them.
        await self._storage.delete(file.stored)
        await self._ledger.run(files.delete_file(file_id))

    async def _own(self, key: Key, file_id: str) -> FileRecord:
        known = created_ms(file_id) is not None
        return own(key, await self._ledger.run(files.read_file(file_id)) if known else None, _unknown())


class Reserved:
    """Room for one file: a record that counts in its owner's account before its bytes are there.

    Attributes:
        file: the record, without what the end of the form will say.
    """

    def __init__(self, ledger: AsyncLedger, key: Key, settings: Settings) -> None:
        file_id = new_file_id()
        self.file = FileRecord(
            id=file_id,
            owner=key.owner,
            filename="",
            purpose=Purpose.USER_DATA,
            size_bytes=1,  # or whoever says no size would be read although there is no room
            created_ms=created_ms(file_id) or 0,
            stored=stored_name(key.owner, file_id),
            state="uploading",
        )
        self._ledger = ledger
        self._room = room_of(key, settings, files=files.MAX_FILES)
        self._change = ""
        self._renewed_s = 0.0

    async def hold(self, size_bytes: int, *, exactly: bool = False) -> None:
        """Counts so many bytes from now on, or more where not `exactly`. To be called whenever bytes came.

        Raises:
            Forbidden: they are too many.
            StorageFull, RedisUnavailable: it cannot be.
        """
        if self._change and not exactly and time.monotonic() - self._renewed_s < _RENEW_S:
            return
        least_bytes = size_bytes if exactly else max(size_bytes, self.file.size_bytes)
        self.file = self.file.model_copy(update={"size_bytes": least_bytes})
        change = new_change()
        if not self._change:
            reserve = files.put_file(self.file, self._room, change=change)
            await self._ledger.run(replace(reserve, promised=False))  # nobody relies on it
        elif not await self._put(self.file, change, self._room, promised=False):
            raise _stood_still()
        self._change, self._renewed_s = change, time.monotonic()

    async def during(self, storing: Coroutine[Any, Any, None]) -> None:
        """Waits until the bytes are stored, however long that takes, and holds what it held."""
        task = asyncio.create_task(storing, name="upload")
        try:
            while task not in (await asyncio.wait({task}, timeout=_RENEW_S))[0]:
                with suppress(EmbedqError):  # if it has gone, `keep` says so
                    await self.hold(self.file.size_bytes, exactly=True)
            await task
        finally:
            task.cancel()

    async def keep(self, record: FileRecord) -> bool:
        """Makes it the record of a file that is there; False where the record has gone meanwhile."""
        change = self._change
        self._change = ""  # after a lost answer it may be a file already; else it ends by itself
        return await self._put(record, new_change(), ANY_ROOM, before=change)

    async def _put(
        self, record: FileRecord, change: str, room: Room, before: str = "", *, promised: bool = True
    ) -> bool:
        last = ReadRecord(record.id, record, before or self._change)
        put = store.change(last, record, room, for_ms=record.life_ms, name=change)
        return await self._ledger.run(replace(put, promised=promised))

    async def give_back(self) -> None:
        """Nothing counts any more. Where Redis does not hear of it, the record ends by itself."""
        if self._change:
            with suppress(Unavailable):
                await self._ledger.run(files.delete_file(self.file.id))


def _stood_still() -> Overloaded:
    return Overloaded("The upload stood still for too long; send the file again.", retry_after_s=1)


def _check(upload: Upload, purpose: Purpose, settings: Settings) -> None:
    if upload.size_bytes > settings.max_file_bytes:
        raise too_large(settings.max_file_bytes)
    is_control = any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in upload.filename)
    if is_control or not 0 < len(upload.filename) <= _MAX_FILENAME_CHARS:
        raise Invalid(
            "invalid_value",
            f"The file's name must have 1 to {_MAX_FILENAME_CHARS} characters, without control characters.",
            param="file",
        )
    if not upload.size_bytes and purpose is not Purpose.USER_DATA:  # there it says that a document has no text now
        raise Invalid("invalid_file_format", "The file is empty.", param="file")
    if purpose is Purpose.BATCH:
        _check_requests(upload, settings)


def _check_requests(upload: Upload, settings: Settings) -> None:
    if not upload.filename.lower().endswith(".jsonl"):
        raise Invalid("invalid_file_format", "Invalid file format for Batch API. Must be .jsonl", param="file")
    # A line that is longer comes in pieces: the batch will say so, and here it must not fill the memory.
    lines = iter(lambda: upload.file.readline(settings.max_body_bytes), b"")
    if not any(_is_object(line) for line in islice(lines, _PROBED_LINES)):
        raise Invalid(
            "invalid_file_format",
            "Invalid file format for Batch API: no line of this .jsonl file is a JSON object.",
            param="file",
        )
    upload.file.seek(0)


def _is_object(line: bytes) -> bool:
    line = line.removeprefix(BOM_UTF8)
    if not line.lstrip().startswith(b"{") or has_more_parts(line):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _unknown() -> NotFound:
    return NotFound("file_not_found", "No such File object. GET /v1/files lists yours.", param="id")
