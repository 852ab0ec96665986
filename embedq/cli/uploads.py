"""What one `embedq ingest` sends: local files that the server does not have, deleted when they are not needed."""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from embedq.cli.output import Output
from embedq.cli.progress import Progress
from embedq.errors import EmbedqClientError, RefusedError
from embedq.ingestions import Ingestions
from embedq.local_files import LocalFile
from embedq.many import run_all
from embedq.transport import Job

UPLOADS_IN_FLIGHT = 8
"""Files sent at the same time."""
_LAST_ANSWER_S = 5.0
"""How long an interrupted command waits for the answers to what it is sending."""
_OF_ONE_FILE = {"invalid_file_format", "file_too_large"}
"""Refusals that concern one file alone: the others are still sent."""
_UNREADABLE = "0" * 64
"""A digest that no file has: the server lists such a document as failed."""


class Uploads:
    """Files on the server that belong to one run.

    Attributes:
        needed: whether an ingestion that goes on without the command reads them.
    """

    def __init__(self, server: Ingestions, output: Output) -> None:
        self.needed = False
        self._server, self._output = server, output
        self._ids: dict[str, str] = {}
        """By the id of the document."""

    async def unknown(self, files: Sequence[LocalFile], body: dict[str, Any]) -> list[LocalFile]:
        """Names the files in the body by their digests; those that the server does not have in this form.

        The server is asked with the whole request: it refuses now what it would refuse after the last upload.
        """

        async def named(file: LocalFile) -> dict[str, str]:
            return {"sha256": await asyncio.to_thread(_sha256, file.path), "document_id": file.id}

        body["source"]["files"] = await run_all(named, files, limit=UPLOADS_IN_FLIGHT)
        known = await self._server.known(body)
        return [file for file in files if file.id not in known]

    async def send(self, files: Sequence[LocalFile], body: dict[str, Any]) -> None:
        """Sends files and names them in the body. One that cannot be sent keeps its digest: it fails on the server.

        Raises:
            RefusedError: the server takes none of them.
        """
        with Progress("uploading", json_lines=self._output.json_lines) as progress:

            async def send(file: LocalFile) -> None:
                try:
                    await self._sent(file)
                except OSError as error:
                    self._output.note(f"{file.id} cannot be sent: {error.strerror or error}", document=file.id)
                except RefusedError as error:
                    if error.code not in _OF_ONE_FILE:
                        raise
                    said = f"{file.id} cannot be sent: {error.code}: {error.message}"
                    self._output.note(said, document=file.id, code=error.code)
                progress.update(len(self._ids), total=len(files))

            await run_all(send, files, limit=UPLOADS_IN_FLIGHT)
        known, sent = len(body["source"]["files"]) - len(files), len(self._ids)
        self._output.note(f"{known:,} known, {sent:,} sent", known=known, sent=sent)
        body["source"]["files"] = [
            {"id": self._ids[name], "document_id": name} if name in self._ids else file
            for file in body["source"]["files"]
            for name in [file["document_id"]]
        ]

    async def start(self, body: dict[str, Any]) -> Job:
        """Starts the ingestion, which from then on needs the uploads."""
        self.needed = True  # it may be accepted, and only the answer lost
        try:
            return await self._server.start(body)
        except RefusedError:
            self.needed = False
            raise

    async def release(self, ended: Job) -> None:
        """Leaves the uploads to be deleted, except those of failed documents, which a retry reads."""
        if ended.status == "completed" and ended["file_counts"]["failed"]:
            failed = [document["source_uri"] async for document in self._server.documents(ended.id, "failed")]
            kept = {uri.removeprefix("file:").partition("/")[0] for uri in failed}
            self._ids = {name: file_id for name, file_id in self._ids.items() if file_id not in kept}
        self.needed = ended["resumable"]

    async def clean_up(self) -> None:
        """Deletes the uploads, unless an ingestion still reads them. Otherwise the server does so in a week."""

        async def delete(file_id: str) -> None:
            with suppress(EmbedqClientError):  # the user should read what else happened
                await self._server.delete_upload(file_id)

        if not self.needed:
            await run_all(delete, self._ids.values(), limit=UPLOADS_IN_FLIGHT)

    async def _sent(self, file: LocalFile) -> None:
        async def send() -> None:
            name = file.path.name.encode(errors="replace").decode()
            self._ids[file.id] = await self._server.upload(file.path, name)

        sending = asyncio.create_task(send())
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            # The server may have all of it and be about to answer. What it has is to be deleted.
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(sending, return_exceptions=True), _LAST_ANSWER_S)
            raise


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:  # told when it is sent
        return _UNREADABLE
