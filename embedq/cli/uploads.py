"""The uploads of one `embedq ingest`: local files that the server does not have, sent and deleted."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from embedq.cli.ingest_report import in_options
from embedq.concurrency import run_all
from embedq.errors import EmbedqClientError, RefusedError
from embedq.ingestions import FailedDocument, Ingestions
from embedq.local_files import LocalFile

UPLOADS_IN_FLIGHT = 8
"""Files sent at the same time."""
RECORD_ENDINGS = {".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}
"""Files of many documents, none of which is known by the bytes of the file. The server has the same list."""
_LAST_ANSWER_S = 5.0
"""How long an interrupted command waits for the answers to what it is sending."""
_OF_ONE_FILE = {"invalid_file_format", "file_too_large"}
"""Refusals that concern one file alone: the others are still sent."""


class Uploads:
    """Files on the server that belong to one run, and those that could not be sent.

    Attributes:
        ids: of what was uploaded, and will be deleted.
        documents: the source of the request: uploads, or digests of what was not sent, and the ids of their documents.
        not_sent: documents that failed on this side.
        needed: whether an ingestion that continues without the command reads them.
    """

    def __init__(self, server: Ingestions) -> None:
        self.ids: list[str] = []
        self.documents: list[dict[str, str]] = []
        self.not_sent: list[FailedDocument] = []
        self.needed = False
        self._server = server

    async def send(
        self, files: Sequence[LocalFile], on_sent: Callable[[int, int], None], asked: Mapping[str, Any] | None = None
    ) -> None:
        """Sends the files. `on_sent` is called with the number of those that are done, and of those that failed.

        `asked`: the request without source; what it would find unchanged is not sent. None: all are sent.

        Raises:
            RefusedError: the server takes none of them.
        """

        async def send(file: LocalFile) -> None:
            await self._send(file)
            on_sent(len(self.documents) + len(self.not_sent), len(self.not_sent))

        new = files
        try:
            if asked is not None:
                new = await self._new(files, asked)
            await run_all(send, new, limit=UPLOADS_IN_FLIGHT)
        except RefusedError as error:
            raise _explained(error, len(new)) from None
        order = {file.id: number for number, file in enumerate(files)}
        self.documents.sort(key=lambda document: order[document["document_id"]])

    async def _new(self, files: Sequence[LocalFile], asked: Mapping[str, Any]) -> Sequence[LocalFile]:
        """Those that are to be sent. To send 10,000 unchanged ones again took 160 s."""
        digests: dict[str, str] = {}

        async def take(file: LocalFile) -> None:
            with suppress(OSError):  # told when it is sent
                digests[file.id] = await asyncio.to_thread(_sha256, file.path)

        whole = (file for file in files if file.path.suffix.lower() not in RECORD_ENDINGS)
        await run_all(take, whole, limit=UPLOADS_IN_FLIGHT)
        named = [{"sha256": digest, "document_id": document_id} for document_id, digest in digests.items()]
        known = await self._server.known({**asked, "source": {"files": named}}) if named else set()
        self.documents = [file for file in named if file["document_id"] in known]
        return [file for file in files if file.id not in known]

    async def clean_up(self) -> None:
        """Deletes the uploads, unless an ingestion still reads them."""
        if not self.needed:
            await run_all(self._delete, self.ids, limit=UPLOADS_IN_FLIGHT)

    async def _delete(self, file_id: str) -> None:
        # The server deletes it in a week. The user should read what else happened.
        with suppress(EmbedqClientError):
            await self._server.delete_upload(file_id)

    async def _send(self, file: LocalFile) -> None:
        try:
            file_id = await self._uploaded(file)
        except RefusedError as error:
            if error.code not in _OF_ONE_FILE:
                raise
            self.not_sent.append(FailedDocument(file.id, error.code, error.message))
        except OSError as error:
            message = f"The file cannot be read: {error.strerror or error}."
            self.not_sent.append(FailedDocument(file.id, "unreadable", message))
        else:
            self.documents.append({"id": file_id, "document_id": file.id})

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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _explained(error: RefusedError, files: int) -> EmbedqClientError:
    if error.code != "quota_exceeded":
        return in_options(error)
    return error.reworded(
        f"{error.message} This ingestion needs room for {files:,}. Uploads of runs that were detached or interrupted "
        "stay for seven days and count. A folder that the server reads itself needs none: name it as a file:// URL "
        "below EMBEDQ_INGEST_ROOTS."
    )
