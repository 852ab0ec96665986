"""What one `embedq ingest` sends: local files that the server does not have, deleted when they are not needed."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import copyfileobj
from typing import Any

from embedq.cli.exit_codes import UsageError
from embedq.cli.output import standard_input
from embedq.cli.progress import Progress
from embedq.concurrency import run_all
from embedq.errors import EmbedqClientError, RefusedError
from embedq.ingestions import Ingestions
from embedq.local_files import LocalFile, local_files

UPLOADS_IN_FLIGHT = 8
"""Files sent at the same time."""
RECORD_ENDINGS = {".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}
"""Files of many documents, none of which is known by the bytes of the file. The server has the same list."""
_NOT_KNOWN = "0" * 64
"""A digest that no file has."""
_LAST_ANSWER_S = 5.0
"""How long an interrupted command waits for the answers to what it is sending."""
_OF_ONE_FILE = {"invalid_file_format", "file_too_large"}
"""Refusals that concern one file alone: the others are still sent."""


def chosen_files(
    sources: Sequence[str], include: Sequence[str], exclude: Sequence[str], stdin: LocalFile
) -> list[LocalFile]:
    """The local files that are meant; [] where the server reads URLs. `-` is what comes from standard input.

    Raises:
        UsageError, BadInputError: they cannot be ingested together, or at all.
    """
    if any("://" in source for source in sources):
        if not all("://" in source for source in sources):
            raise UsageError("local files and URLs cannot be mixed in one ingestion; run the command for each kind")
        if include or exclude:
            raise UsageError(
                "--include and --exclude are for local files; a URL may be a pattern, as in 's3://b/**/*.md'"
            )
        return []
    if list(sources) == ["-"]:
        with stdin.path.open("wb") as file:  # on the disk, because it is read twice
            copyfileobj(standard_input(), file)
        return [stdin]
    if "-" in sources:
        raise UsageError("- (standard input) is a source of its own; run the command for the others")
    return local_files([Path(source) for source in sources], include, exclude)


class Uploads:
    """Files on the server that belong to one run, and those that could not be sent.

    Attributes:
        ids: of what was uploaded, and will be deleted.
        documents: the source of the request: uploads, or digests of what was not sent, and the ids of their documents.
        not_sent: documents that failed on this side, as the server lists failed ones.
        needed: whether an ingestion that continues without the command reads them.
    """

    def __init__(self, server: Ingestions) -> None:
        self.ids: list[str] = []
        self.documents: list[dict[str, str]] = []
        self.not_sent: list[dict[str, Any]] = []
        self.needed = False
        self._server = server

    async def send(self, files: Sequence[LocalFile], body: Mapping[str, Any], progress: Progress) -> None:
        """Sends the files of which the server does not say that it knows them.

        It is asked first, with the body of the ingestion without its source: it refuses then what it would refuse
        after the last upload.

        Raises:
            RefusedError: the server takes none of them.
        """
        # To send 10,000 unchanged files again took 160 s.
        digests: dict[str, str] = {}

        async def take(file: LocalFile) -> None:
            records = body["mode"] == "upsert" or file.path.suffix.lower() in RECORD_ENDINGS
            digests[file.id] = _NOT_KNOWN if records else await asyncio.to_thread(_sha256, file.path)

        await run_all(take, files, limit=UPLOADS_IN_FLIGHT)
        named = [{"sha256": digests[file.id], "document_id": file.id} for file in files]
        known = await self._server.known({**body, "source": {**body["source"], "files": named}})
        known = {name for name in known if digests[name] != _NOT_KNOWN}
        self.documents = [document for document in named if document["document_id"] in known]

        async def send(file: LocalFile) -> None:
            await self._send(file)
            progress.update(len(self.documents) + len(self.not_sent), len(self.not_sent), total=len(files))

        new = [file for file in files if file.id not in known]
        await run_all(send, new, limit=UPLOADS_IN_FLIGHT)
        order = {file.id: number for number, file in enumerate(files)}
        self.documents.sort(key=lambda document: order[document["document_id"]])

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
            self._fail(file, error.code, error.message)
        except OSError as error:
            self._fail(file, "unreadable", f"The file cannot be read: {error.strerror or error}.")
        else:
            self.documents.append({"id": file_id, "document_id": file.id})

    def _fail(self, file: LocalFile, code: str, message: str) -> None:
        self.not_sent.append({"id": file.id, "last_error": {"code": code, "message": message}})

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
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:  # told when it is sent
        return _NOT_KNOWN
