"""The uploads of one `embedq ingest`: local files sent to the server, deleted or kept for the next run."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from embedq import environment
from embedq.atomic_file import atomic_file
from embedq.concurrency import run_all
from embedq.errors import EmbedqClientError, RefusedError
from embedq.ingestions import FailedDocument, Ingestions
from embedq.local_files import LocalFile

UPLOADS_IN_FLIGHT = 8
"""Files sent at the same time."""
LEAST_KEPT_S = 86_400
"""An upload that the server deletes sooner is sent again, because the ingestion has to read it first."""
_LAST_ANSWER_S = 5.0
"""How long an interrupted command waits for the answers to what it is sending."""
_OF_ONE_FILE = {"invalid_file_format", "file_too_large"}
"""Refusals that concern one file alone: the others are still sent."""


class KeptUploads:
    """Uploads that stay on one server for the next run, by the bytes of their files. Stored in a file of this machine.

    Sending 10,000 unchanged files again took 160 s. The key of a file is a hash of its bytes, and its name, from which
    the server tells its format. Its folder and its times do not count.

    Args:
        notes: the file; `write` makes it, and one that cannot be read counts as missing.
        on_server: ids of the uploads that are on the server for long enough; others are forgotten.
    """

    def __init__(self, notes: Path, on_server: Collection[str]) -> None:
        self._notes = notes
        self._ids = {key: file_id for key, file_id in _read(notes).items() if file_id in on_server}

    def find(self, path: Path) -> tuple[str, str | None]:
        """The key of a file, and the id of the upload with its bytes, if there is one. Reads the whole file.

        Raises:
            OSError: it cannot be read.
        """
        with path.open("rb") as file:
            key = f"{hashlib.file_digest(file, 'sha256').hexdigest()} {path.name.encode(errors='replace').decode()}"
        return key, self._ids.get(key)

    def add(self, key: str, file_id: str) -> None:
        """Takes a new upload."""
        self._ids[key] = file_id

    def write(self) -> None:
        """Stores the notes for the next run."""
        self._notes.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self._notes) as file:
            file.write(json.dumps(self._ids, indent=0).encode())


class Uploads:
    """Files on the server that belong to one run, and those that could not be sent.

    Attributes:
        ids: of what was uploaded, and will be deleted.
        documents: the source of the request: uploads and the ids of their documents.
        not_sent: documents that failed on this side.
        needed: whether an ingestion that continues without the command reads them.
    """

    def __init__(self, server: Ingestions) -> None:
        self.ids: list[str] = []
        self.documents: list[dict[str, str]] = []
        self.not_sent: list[FailedDocument] = []
        self.needed = False
        self._server = server
        self._kept: KeptUploads | None = None

    async def keep(self) -> None:
        """Makes `send` use the uploads that earlier runs have kept, and `clean_up` keep those of this run."""
        notes = _notes_file(environment.cache_folder(), self._server.url)
        self._kept = KeptUploads(notes, await self._server.uploads(LEAST_KEPT_S))

    async def send(self, files: Sequence[LocalFile], on_sent: Callable[[int, int], None]) -> None:
        """Sends the files. `on_sent` is called with the number of those that are done, and of those that failed.

        Raises:
            RefusedError: the server takes none of them.
        """

        async def send(file: LocalFile) -> None:
            await self._send(file)
            on_sent(len(self.documents) + len(self.not_sent), len(self.not_sent))

        try:
            await run_all(send, files, limit=UPLOADS_IN_FLIGHT)
        except RefusedError as error:
            raise _explained(error, len(files)) from None
        order = {file.id: number for number, file in enumerate(files)}
        self.documents.sort(key=lambda document: order[document["document_id"]])

    async def clean_up(self) -> None:
        """Notes the uploads for the next run, or deletes them unless an ingestion still reads them."""
        if self._kept:
            self._kept.write()
        elif not self.needed:
            await run_all(self._delete, self.ids, limit=UPLOADS_IN_FLIGHT)

    async def _delete(self, file_id: str) -> None:
        # The server deletes it in a week. The user should read what else happened.
        with suppress(EmbedqClientError):
            await self._server.delete_upload(file_id)

    async def _send(self, file: LocalFile) -> None:
        try:
            file_id = await self._kept_or_uploaded(file)
        except RefusedError as error:
            if error.code not in _OF_ONE_FILE:
                raise
            self.not_sent.append(FailedDocument(file.id, error.code, error.message))
        except OSError as error:
            message = f"The file cannot be read: {error.strerror or error}."
            self.not_sent.append(FailedDocument(file.id, "unreadable", message))
        else:
            self.documents.append({"id": file_id, "document_id": file.id})

    async def _kept_or_uploaded(self, file: LocalFile) -> str:
        """The id of an upload with the bytes of the file: an earlier one that was kept, else a new one."""
        if self._kept is None:
            return await self._uploaded(file)
        before = file.path.stat()
        key, kept_id = await asyncio.to_thread(self._kept.find, file.path)
        if kept_id is not None:
            return kept_id
        file_id = await self._uploaded(file)
        after = file.path.stat()
        # A file that was written to meanwhile may have been sent in part old, in part new.
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            self._kept.add(key, file_id)
        return file_id

    async def _uploaded(self, file: LocalFile) -> str:
        """The id of the upload. An interrupted call still adds it to `ids`, because it has to be deleted."""
        sending = asyncio.create_task(self._server.upload(file.path, file.path.name.encode(errors="replace").decode()))
        try:
            file_id = await asyncio.shield(sending)
        except asyncio.CancelledError:
            # The server may have all of it and be about to answer.
            with suppress(EmbedqClientError, OSError, asyncio.TimeoutError):
                self.ids.append(await asyncio.wait_for(sending, _LAST_ANSWER_S))
            raise
        self.ids.append(file_id)
        return file_id


@asynccontextmanager
async def uploading(server: Ingestions) -> AsyncIterator[Uploads]:
    """Uploads for the block; cleaned up at its end."""
    uploads = Uploads(server)
    try:
        yield uploads
    finally:
        await uploads.clean_up()


def _explained(error: RefusedError, files: int) -> RefusedError:
    if error.code != "quota_exceeded":
        return error
    return error.reworded(
        f"{error.message} This ingestion needs room for {files:,}. Uploads of runs that were detached or interrupted "
        "stay for seven days and count. A folder that the server reads itself needs none: name it as a file:// URL "
        "below EMBEDQ_INGEST_ROOTS."
    )


def _notes_file(cache: Path, server: str) -> Path:
    """The file of the notes about one server."""
    return cache / f"uploads-{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"


def _read(notes: Path) -> Mapping[str, Any]:
    try:
        ids = json.loads(notes.read_bytes())
    except (OSError, JSONDecodeError, UnicodeDecodeError):
        return {}
    return ids if isinstance(ids, dict) else {}
