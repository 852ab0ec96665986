"""Files: their bytes are in the storage, their records in the ledger."""

import asyncio
import unicodedata
from codecs import BOM_UTF8
from itertools import islice

import orjson

from api.async_storage import AsyncStorage
from api.paging import ListPage, read_page
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.files import File, NewFile
from api.services.owned import own, quota_of
from api.uploads import Content, Upload, too_large
from tasks.errors import Forbidden, Invalid, NotFound, StorageFull
from tasks.ledger.client import AsyncLedger
from tasks.records import files
from tasks.records.api_keys import Key
from tasks.records.files import FileRecord, Order, Purpose, created_ms, new_file_id, stored_name
from tasks.wire.json_limits import has_more_parts
from worker_config.settings import Settings

_AT_ONCE = 250
"""Files that one reply of Redis has: it holds the event loop."""
_MAX_FILENAME_CHARS = 255
_PROBED_LINES = 50_000
"""As many requests as a batch may have. A file that has none in so many lines cannot be a batch."""


class FileService:
    """The files of this service. What takes an id raises `NotFound` where the caller has no such file."""

    def __init__(self, ledger: AsyncLedger, storage: AsyncStorage, settings: Settings) -> None:
        self._ledger = ledger
        self._storage = storage
        self._settings = settings
        self.max_bytes = settings.max_file_bytes

    async def require_room(self, key: Key, size_bytes: int) -> None:
        """For a file of at least this size. Raises `Forbidden` if it would not be taken."""
        least_bytes = max(1, size_bytes)  # or whoever says no size would be read although there is no room
        await self._ledger.run(files.require_room(key.owner, least_bytes, quota_of(key, self._settings)))

    async def create(self, key: Key, upload: Upload) -> File:
        """Stores a file. When this returns it is stored whole; after an error nothing of it is.

        Raises:
            RequestError: the field that is wrong; `Refused`, `Invalid`: the file, for its purpose.
            Forbidden, StorageFull, StorageUnavailable, DiskFull: nothing of it is stored.
            RedisUnavailable: it is not known whether it has a record.
        """
        form = NewFile.read(upload.fields)
        purpose, expires_in_s = Purpose(form.purpose), form.expires_in_s()
        await asyncio.to_thread(_check, upload, purpose, self._settings)
        file_id = new_file_id()
        made_ms = created_ms(file_id) or 0
        record = FileRecord(
            id=file_id,
            owner=key.owner,
            filename=upload.filename,
            purpose=purpose,
            size_bytes=upload.size_bytes,
            created_ms=made_ms,
            expires_ms=None if expires_in_s is None else made_ms + expires_in_s * 1000,
            stored=stored_name(file_id),
        )
        await self._storage.store(record.stored, upload.file)
        try:
            stored = await self._ledger.run(files.put_file(record, quota_of(key, self._settings)))
            return File.model_validate(stored)
        except (Forbidden, StorageFull):
            # Only where Redis said no. After a lost answer there may be a record, which must not lead to nothing.
            await self._storage.discard(record.stored)
            raise

    async def list(self, key: Key, page: PagePlace, purpose: str | None, order: Order) -> Page[File]:
        """A page of the caller's files, by age. `purpose`: of this one only; None: of any. Raises `Invalid`."""
        if page.after is not None and created_ms(page.after) is None:
            raise Invalid("invalid_value", "after must be the id of a file.", param="after")

        async def read(after: str | None, limit: int) -> ListPage[FileRecord]:
            some = files.list_files(key.owner, purpose=purpose, after=after, limit=min(limit, _AT_ONCE), order=order)
            found = await self._ledger.run(some)
            return ListPage(found.files, found.next, found.next is not None)

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
    if upload.size_bytes > settings.max_batch_file_bytes:
        raise too_large(settings.max_batch_file_bytes, "EMBEDQ_MAX_BATCH_FILE_BYTES")
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
