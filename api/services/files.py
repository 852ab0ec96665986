"""Files: their bytes are in the storage, their records in the ledger."""

from api.async_storage import AsyncStorage
from api.request.offload import offload
from api.request.paging import ListPage, read_page
from api.schemas.common import Page, PagePlace
from api.schemas.files import File
from api.services.owned import own, quota_of
from api.uploads import Content, Upload
from tasks.errors import FileUnknown, InvalidValue, QuotaExceeded, StorageFull
from tasks.ledger import AsyncLedger
from tasks.records import files
from tasks.records.api_keys import Key
from tasks.records.files import FileRecord, Order, created_ms, new_file_id, stored_name
from worker_config.settings import Settings

_AT_ONCE = 250
"""Files that one reply of Redis has: it holds the event loop."""
_BYTES_OF_FILE = 400
"""About as much has a file in a list."""


class FileService:
    """The files of this service."""

    def __init__(self, ledger: AsyncLedger, storage: AsyncStorage, settings: Settings) -> None:
        self._ledger = ledger
        self._storage = storage
        self._settings = settings

    async def require_room(self, key: Key, size_bytes: int) -> None:
        """Raises `QuotaExceeded` if a file of this size would not be taken."""
        await self._ledger.run(files.require_room(key.owner, size_bytes, quota_of(key, self._settings)))

    async def create(self, key: Key, upload: Upload) -> File:
        """Stores a file. When this returns it is stored whole.

        Raises:
            QuotaExceeded, StorageFull, StorageUnavailable, DiskFull: nothing of it is stored.
            RedisUnavailable: it is not known whether it has a record.
        """
        file_id = new_file_id()
        made_ms = created_ms(file_id) or 0
        record = FileRecord(
            id=file_id,
            owner=key.owner,
            filename=upload.filename,
            purpose=upload.purpose,
            size_bytes=upload.size_bytes,
            created_ms=made_ms,
            expires_ms=None if upload.expires_in_s is None else made_ms + upload.expires_in_s * 1000,
            stored=stored_name(file_id),
        )
        await self._storage.store(record.stored, upload.file)
        try:
            return File.of(await self._ledger.run(files.put_file(record, quota_of(key, self._settings))))
        except (QuotaExceeded, StorageFull):
            # Only where Redis said no. After a lost answer there may be a record, which must not lead to nothing.
            await self._storage.discard(record.stored)
            raise

    async def list(self, key: Key, page: PagePlace, purpose: str | None, order: Order) -> Page[File]:
        """A page of the caller's files, by age. `purpose`: of this one only; None: of any.

        Raises:
            InvalidValue: the page begins behind no id of a file.
        """
        if page.after is not None and created_ms(page.after) is None:
            raise InvalidValue("after must be the id of a file.", param="after")

        async def read(after: str | None, limit: int) -> ListPage[FileRecord]:
            some = files.list_files(key.owner, purpose=purpose, after=after, limit=min(limit, _AT_ONCE), order=order)
            found = await self._ledger.run(some)
            return ListPage(found.files, found.next, found.next is not None)

        # One more than asked for says whether there is more.
        records = (await read_page(read, after=page.after, limit=page.limit + 1)).items
        more = len(records) > page.limit

        def made() -> Page[File]:
            return Page[File].of([File.of(record) for record in records[: page.limit]], more=more)

        return await offload(len(records) * _BYTES_OF_FILE, made)

    async def read(self, key: Key, file_id: str) -> File:
        """The record of a file; raises `FileUnknown`."""
        return File.of(await self._own(key, file_id))

    async def content(self, key: Key, file_id: str) -> Content:
        """Where its bytes are; raises `FileUnknown`."""
        file = await self._own(key, file_id)
        # An id never gets other bytes.
        return Content(file.stored, file.size_bytes, tag=file.id, filename=file.filename, gone=_unknown(file_id))

    async def delete(self, key: Key, file_id: str) -> None:
        """Deletes a file for good.

        Raises:
            FileUnknown: the caller has no such file.
            StorageUnavailable: the storage refuses; the file stays.
        """
        file = await self._own(key, file_id)
        # The bytes first: where the storage refuses, the caller hears it, and the record still leads to them.
        await self._storage.delete(file.stored)
        await self._ledger.run(files.delete_file(file_id))

    async def _own(self, key: Key, file_id: str) -> FileRecord:
        known = created_ms(file_id) is not None
        return own(key, await self._ledger.run(files.read_file(file_id)) if known else None, _unknown(file_id))


def _unknown(file_id: str) -> FileUnknown:
    if created_ms(file_id) is None:
        return FileUnknown("No such File object: ids of files are file- and 32 hexadecimal digits.", param="id")
    return FileUnknown(f"No such File object: {file_id}. GET /v1/files lists yours.", param="id")
