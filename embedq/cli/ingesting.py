"""The course of one `embedq ingest`: upload, start, watch, fetch, clean up."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedq import environment
from embedq.cli.exits import OK, SOME_FAILED, UsageError
from embedq.cli.output import Output
from embedq.cli.report import beside, report
from embedq.cli.wording import in_options
from embedq.errors import EmbedqClientError, RefusedError
from embedq.inflight import in_order
from embedq.ingestion import FailedDocument, Ingestion
from embedq.ingestions import Ingestions
from embedq.kept import KeptUploads, notes_of
from embedq.localfiles import LocalFile, local_files
from embedq.outputfolder import OutputFolder, counted
from embedq.progress import showing

UPLOADS = 8
"""Files sent at the same time."""
MOST_FILES = 10_000
"""Of one ingestion; the server takes no more."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _SLOWING = 0.2, 2.0, 1.25
LEAST_KEPT_S = 86_400
"""An upload that the server deletes sooner is sent again: the ingestion has to read it first."""
_LAST_ANSWER_S = 5.0
"""How long an interrupted command waits for the answers to what it is sending."""
_OF_ONE_FILE = {"invalid_file_format", "file_too_large"}
"""Refusals that concern the file alone: the others go on."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where vectors go: `body` for the request; `folder` follows it on this side; `shown` names it to people."""

    body: Mapping[str, Any]
    folder: OutputFolder | None
    shown: str


@dataclass
class Uploads:
    """Files on the server that belong to one run, and those that could not be sent."""

    ids: list[str] = field(default_factory=list)
    documents: list[dict[str, str]] = field(default_factory=list)
    not_sent: list[FailedDocument] = field(default_factory=list)
    needed: bool = False
    """By an ingestion that goes on without us."""
    kept: KeptUploads | None = None
    """For the next run; None: they are deleted when they are not needed any more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: `body` is the request without source and sink, `fields` belongs into its source."""

    sources: Sequence[str]
    fields: Mapping[str, Any]
    body: Mapping[str, Any]
    sink: Sink
    detach: bool = False
    keep_uploads: bool = False
    stays: bool = True
    """Whether the server is there when the command has ended."""

    @property
    def again(self) -> str | None:
        """What to add to `embedq ingest --status ING` after an interruption; None where nothing goes on."""
        return None if not self.stays else f" --out {shlex.quote(self.sink.shown)}" if self.folder else ""

    @property
    def folder(self) -> OutputFolder | None:
        """What follows the dataset on this side, if anything will be loaded into one."""
        return None if self.body.get("dry_run") else self.sink.folder


async def ingest(server: Ingestions, plan: Plan, output: Output) -> int:
    """Does all of it; the exit code."""
    files = _local(plan)
    if plan.folder:
        if plan.folder.filled:
            plan.folder.require_same(await server.dataset_id(plan.folder.dataset))
        plan.folder.claim()  # first: that nothing can be written there should not be said after an hour of uploading
    async with _uploads(server) as uploads:
        try:
            started = await _started(server, plan, files, uploads, output)
        except (RefusedError, UsageError):
            if plan.folder:
                plan.folder.abandon()
            raise
        output.note(f"started {started.id}", id=started.id)
        if plan.detach:
            output.result(started.id, started.raw)
            return OK
        ended = await watch(server, started.id, output, again=plan.again)
        if not ended.resumable:
            kept = await _worth_another_try(server, ended)
            uploads.ids = [file_id for file_id in uploads.ids if file_id not in kept]
            uploads.needed = False
        if plan.folder and ended.status == "failed":
            again = f"embedq ingest --status {ended.id} --out {plan.sink.shown}"
            output.note(f"{plan.sink.shown} is as it was; to fetch what was loaded: {again}", id=ended.id)
        elif plan.folder:
            await follow(server, ended.id, plan.folder, plan.sink.shown, output)
        await report(server, ended, output, not_sent=uploads.not_sent)
    return OK if ended.succeeded and not uploads.not_sent else SOME_FAILED


async def _started(
    server: Ingestions, plan: Plan, files: Sequence[LocalFile], uploads: Uploads, output: Output
) -> Ingestion:
    """The ingestion, with all that it needs on the server."""
    source = await _sent(server, plan, files, uploads, output) if files else {"urls": plan.sources}
    fields = {"fields": plan.fields} if plan.fields else {}
    try:
        started = await server.start({**plan.body, "source": {**source, **fields}, "sink": plan.sink.body})
    except RefusedError as error:
        raise in_options(error) from None
    except EmbedqClientError:
        uploads.needed = True  # it may have been accepted, and only the answer was lost
        raise
    uploads.needed = True
    return started


async def _worth_another_try(server: Ingestions, ended: Ingestion) -> set[str]:
    """Uploads that `--retry` would read again: of documents that failed, but not for what is in them."""
    if not ended.failed or ended.error is not None or ended.status == "cancelled":
        return set()
    async with aclosing(server.failed(ended.id)) as failed:
        return {document.file_id async for document in failed if document.through_no_fault_of_its_own}


async def watch(server: Ingestions, ingestion_id: str, output: Output, *, again: str | None = "") -> Ingestion:
    """Shows an ingestion until it ends; the ingestion then. Whoever interrupts is told how to look again."""
    pause_s = _FIRST_PAUSE_S
    try:
        with showing("documents", None, json_lines=output.json_lines) as progress:
            while True:
                found = await server.status(ingestion_id)
                total = found.total if found.listing_complete else None
                progress.update(found.done, found.failed, total=total, also=beside(found))
                if found.ended:
                    return found
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * _SLOWING)
    except (asyncio.CancelledError, EmbedqClientError):
        if again is not None:
            look = f"embedq ingest --status {ingestion_id}{again}"
            output.note(f"{ingestion_id} goes on; look again with: {look}", id=ingestion_id)
        raise


async def follow(server: Ingestions, ingestion_id: str, folder: OutputFolder, shown: str, output: Output) -> None:
    """Fetches what is new of an ingestion's dataset into a folder."""
    listing = await server.output(ingestion_id)
    fetched = await folder.follow(listing, lambda name, into: server.download(ingestion_id, name, into))
    parts = len(listing.parts)
    output.note(f"{shown} holds {counted(parts)}, {fetched} of them new", parts=parts, fetched=fetched)


@asynccontextmanager
async def _uploads(server: Ingestions) -> AsyncIterator[Uploads]:
    """What is uploaded within the block; deleted at its end, unless an ingestion still needs it."""
    uploads = Uploads()
    try:
        yield uploads
    finally:
        if uploads.kept:
            uploads.kept.write()
        elif not uploads.needed:
            await _delete(server, uploads.ids)


async def _delete(server: Ingestions, ids: Sequence[str]) -> None:
    async def delete(file_id: str) -> None:
        # The server forgets it in a week; whatever else happened is what the user should read.
        with suppress(EmbedqClientError):
            await server.delete_upload(file_id)

    async with aclosing(in_order(delete, ids, limit=UPLOADS)) as deleted:
        async for _ in deleted:
            pass


def _local(plan: Plan) -> list[LocalFile]:
    """The files to be sent; [] where the server reads URLs."""
    remote = [source for source in plan.sources if "://" in source]
    if remote and len(remote) < len(plan.sources):
        raise UsageError("local files and URLs cannot be mixed in one ingestion; run the command for each kind")
    files = [] if remote else local_files(Path(source) for source in plan.sources)
    if len(files) > MOST_FILES:
        raise UsageError(
            f"these are {len(files):,} files, and {MOST_FILES:,} can be uploaded for one ingestion. Let the server "
            "read them itself: put their folder below its EMBEDQ_INGEST_ROOTS and name it as a URL, "
            "`embedq ingest file:///srv/docs`. Or run the command once for each part of them, with the same --out"
        )
    return files


async def _sent(
    server: Ingestions, plan: Plan, files: Sequence[LocalFile], uploads: Uploads, output: Output
) -> dict[str, Any]:
    """Uploads the files; the source for the request."""
    if plan.keep_uploads:
        notes = notes_of(environment.cache_folder(), server.url)
        uploads.kept = KeptUploads(notes, await server.held(LEAST_KEPT_S))
    with showing("uploading", len(files), json_lines=output.json_lines) as progress:

        async def send(file: LocalFile) -> None:
            await _send(server, file, uploads)
            progress.update(len(uploads.documents) + len(uploads.not_sent), len(uploads.not_sent))

        async with aclosing(in_order(send, files, limit=UPLOADS)) as sent:
            try:
                async for _ in sent:
                    pass
            except RefusedError as error:
                raise _explained(error, len(files)) from None
    if uploads.not_sent and (plan.body["mode"] == "sync" or not uploads.documents):
        first = uploads.not_sent[0]
        reason = "with --mode sync it would be deleted" if uploads.documents else "nothing is left to ingest"
        raise UsageError(f"{first.id} cannot be sent, and {reason}: {first.message}")
    order = {file.id: number for number, file in enumerate(files)}
    return {"files": sorted(uploads.documents, key=lambda document: order[document["document_id"]])}


def _explained(error: RefusedError, files: int) -> RefusedError:
    if error.code != "quota_exceeded":
        return error
    return error.reworded(
        f"{error.message} This ingestion needs room for {files:,}. Uploads of runs that were detached or interrupted "
        "stay for seven days and count. A folder that the server reads itself needs none: name it as a file:// URL "
        "below EMBEDQ_INGEST_ROOTS."
    )


async def _send(server: Ingestions, file: LocalFile, uploads: Uploads) -> None:
    try:
        file_id = await _on_the_server(server, file, uploads)
    except RefusedError as error:
        if error.code not in _OF_ONE_FILE:
            raise
        uploads.not_sent.append(FailedDocument(file.id, error.code, error.message))
    except OSError as error:
        message = f"The file cannot be read: {error.strerror or error}."
        uploads.not_sent.append(FailedDocument(file.id, "unreadable", message))
    else:
        uploads.documents.append({"id": file_id, "document_id": file.id})


async def _on_the_server(server: Ingestions, file: LocalFile, uploads: Uploads) -> str:
    """The id of an upload with the bytes of the file: an earlier one that was kept, else a new one."""
    if uploads.kept is None:
        return await _uploaded(server, file, uploads)
    before = file.path.stat()
    key, known = await asyncio.to_thread(uploads.kept.find, file.path)
    if known is not None:
        return known
    file_id = await _uploaded(server, file, uploads)
    after = file.path.stat()
    if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
        uploads.kept.note(key, file_id)  # else it was written to meanwhile, and nobody knows what was sent
    return file_id


async def _uploaded(server: Ingestions, file: LocalFile, uploads: Uploads) -> str:
    """The id of the upload, which is noted also where nobody waits for it any more: somebody has to delete it."""
    sending = asyncio.create_task(server.upload(file.path, file.path.name.encode(errors="replace").decode()))
    try:
        file_id = await asyncio.shield(sending)
    except asyncio.CancelledError:
        # The server may have all of it and be about to answer.
        with suppress(EmbedqClientError, OSError, asyncio.TimeoutError):
            uploads.ids.append(await asyncio.wait_for(sending, _LAST_ANSWER_S))
        raise
    uploads.ids.append(file_id)
    return file_id
