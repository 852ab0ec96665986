"""`embedq ingest`: uploads documents, starts an ingestion, watches it, fetches its vectors; handles existing ones."""

import argparse
import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from embedq.cli.exit_codes import INTERRUPTED, OK, SOME_FAILED, UsageError
from embedq.cli.ingest_report import describe, in_options, list_failures, list_warnings, progress_details, report
from embedq.cli.options import count, encoding_from_args, encoding_options, ingestions_from_args, server_options, within
from embedq.cli.output import Output
from embedq.cli.progress import Progress, showing
from embedq.cli.uploads import Uploads, uploading
from embedq.errors import EmbedqClientError, RefusedError
from embedq.ingestions import Ingestion, Ingestions
from embedq.local_files import LocalFile, local_files
from embedq.output_folder import OutputFolder, counted

DEFAULT_OUT = "vectors"
LEAST_CHUNK_TOKENS = 16
MAX_FILES = 10_000
"""Files of one ingestion; the server takes no more. Without this check, 11,813 files took four minutes to fail."""
_POSTGRESQL = "postgresql:"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _SLOWING = 0.2, 2.0, 1.25

Show = Callable[..., AbstractContextManager[Progress]]
"""Opens a display of progress, as `showing` does."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where vectors go: `body` for the request; `folder` follows it on this side; `shown` names it to people."""

    body: Mapping[str, Any]
    folder: OutputFolder | None
    shown: str

    @classmethod
    def from_option(cls, out: str | None, server: str) -> Self:
        """From `--out`, for a server's address.

        Raises:
            UsageError, BadInputError: it cannot be there.
        """
        out = DEFAULT_OUT if out is None else out
        if not out.startswith(_POSTGRESQL):
            folder = OutputFolder(Path(out), server)
            return cls({"type": "dataset", "dataset": folder.dataset}, folder, out)
        name, slash, table = out.removeprefix(_POSTGRESQL).strip("/").partition("/")
        if not (name and slash and table):
            raise UsageError(
                "--out must look like postgresql:NAME/TABLE, with a connection that the server knows as NAME"
            )
        return cls({"type": "postgresql", "name": name, "table": table}, None, out)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the command.

    Attributes:
        fields: of records, for the source of the request; {}: as the server does by default.
        body: the request without source and sink.
        detach: whether the command ends as soon as the ingestion has started.
        stays: whether the server is still there when the command has ended.
    """

    sources: Sequence[str]
    fields: Mapping[str, Any]
    body: Mapping[str, Any]
    sink: Sink
    detach: bool = False
    stays: bool = True
    max_files: int = MAX_FILES

    @property
    def status_options(self) -> str | None:
        """What to add to `embedq ingest --status ING` after an interruption; None where nothing continues."""
        return None if not self.stays else f" --out {shlex.quote(self.sink.shown)}" if self.folder else ""

    @property
    def folder(self) -> OutputFolder | None:
        """The folder that follows the dataset on this side, if anything will be loaded into one."""
        return None if self.body.get("dry_run") else self.sink.folder


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = "Ctrl-C detaches: the ingestion goes on, and --status looks at it again."
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="local files and folders; or URLs and globs that the server reads"
    )
    parser.add_argument(
        "--out",
        metavar="DIR|postgresql:NAME/TABLE",
        help=f"a folder that gets the dataset as Parquet files (default: {DEFAULT_OUT}), or a table over a connection "
        "of the server",
    )
    parser.add_argument(
        "--mode",
        choices=["skip_unchanged", "upsert", "sync"],
        default="skip_unchanged",
        help="upsert: do unchanged documents again too; sync: also delete those that are gone from the source",
    )
    parser.add_argument(
        "--on-conflict",
        choices=["fail", "replace"],
        help="of a record whose id another file has brought (default: fail; replace with --mode upsert or sync)",
    )
    _chunking_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="count documents, chunks and tokens; load nothing")
    parser.add_argument("--detach", action="store_true", help="start it, print its id, and leave")
    about = parser.add_mutually_exclusive_group()
    about.add_argument("--status", metavar="ING", help="print where an ingestion is; with --out fetch its output")
    about.add_argument("--cancel", metavar="ING", help="end an ingestion; what is loaded stays")
    about.add_argument("--errors", metavar="ING", help="print every document that has failed or has warnings, and why")
    about.add_argument("--retry", metavar="ING", help="try its failed documents again")
    about.add_argument("--delete", metavar="ING", help="delete the record of one that has ended; a named dataset stays")
    encoding_options(parser, truncating=False)
    server_options(parser, timeout_s=None)
    parser.set_defaults(run=run)


def _chunking_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chunk-tokens", type=count, metavar="N", help="tokens of one chunk (default: by structure)")
    parser.add_argument("--overlap", type=count, metavar="N", help="tokens that a chunk shares with the one before")
    parser.add_argument("--no-chunking", action="store_true", help="one vector for each document")
    parser.add_argument(
        "--text-field", action="append", metavar="F", help="of JSONL, CSV, Parquet: the text; several are joined"
    )
    parser.add_argument("--id-field", metavar="F", help="likewise: the document's id")
    parser.add_argument(
        "--metadata-field", action="append", metavar="F", help="likewise: kept with each chunk; '*' for all others"
    )


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    output = Output(args.json)
    existing = args.status or args.errors or args.cancel or args.retry or args.delete
    if bool(existing) == bool(args.sources):
        raise UsageError(
            "name either sources to ingest, or an ingestion with --status, --errors, --cancel, --retry or --delete"
        )
    work = _about_existing(args, output) if existing else _ingest_from_args(args, output)
    try:
        return asyncio.run(within(args.timeout, work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.note("interrupted")  # `watch` has noted what continues
        return INTERRUPTED


async def _ingest_from_args(args: argparse.Namespace, output: Output) -> int:
    body, fields = body_from_args(args), fields_from_args(args)
    async with ingestions_from_args(args, output) as server:
        plan = Plan(args.sources, fields, body, Sink.from_option(args.out, server.url), args.detach)
        return await ingest(server, plan, output)


async def _about_existing(args: argparse.Namespace, output: Output) -> int:
    async with ingestions_from_args(args, output) as server:
        if args.errors:
            failed = await list_failures(server, args.errors, output)
            await list_warnings(server, args.errors, output)
            return SOME_FAILED if failed else OK
        if args.delete:
            await server.delete(args.delete)
            output.result(f"{args.delete} deleted", {"id": args.delete, "deleted": True})
            return OK
        if args.cancel:
            ingestion = await server.cancel(args.cancel)
        elif args.retry:
            ingestion = await server.retry(args.retry)
            if not args.detach:
                ingestion = await watch(server, ingestion.id, output)
        else:
            ingestion = await server.status(args.status)
        if args.out and ingestion.ended:
            sink = ingestion.raw["sink"]
            if sink["type"] != "dataset":
                raise UsageError("only a dataset can be fetched, not a table of PostgreSQL")
            dataset = sink.get("dataset", ingestion.id)  # without a name it has that of the ingestion
            folder = OutputFolder(Path(args.out), server.url, dataset)
            await follow(server, ingestion.id, folder, args.out, output)
        if not ingestion.ended:
            output.result(describe(ingestion), ingestion.raw)
            return OK
        if args.retry and not args.out and ingestion.raw["sink"]["type"] == "dataset":
            output.note(f"to fetch its files: embedq ingest --status {ingestion.id} --out DIR", id=ingestion.id)
        await report(server, ingestion, output)
        return OK if ingestion.succeeded or args.cancel else SOME_FAILED


def body_from_args(args: argparse.Namespace) -> dict[str, Any]:
    """The request without source and sink.

    Raises:
        UsageError: options that exclude each other.
    """
    body: dict[str, Any] = {"mode": args.mode, "chunking": _chunking_from_args(args), **encoding_from_args(args)}
    if args.model:
        body["model"] = args.model
    if args.on_conflict:
        body["on_conflict"] = args.on_conflict
    if args.dry_run:
        body["dry_run"] = True
    return body


def fields_from_args(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of records that were named; {} for none."""
    metadata = "*" if args.metadata_field == ["*"] else args.metadata_field
    fields = {"id": args.id_field, "text": args.text_field, "metadata": metadata}
    return {name: value for name, value in fields.items() if value}


def _chunking_from_args(args: argparse.Namespace) -> dict[str, Any]:
    if args.no_chunking and (args.chunk_tokens or args.overlap):
        raise UsageError("--no-chunking has no use for --chunk-tokens and --overlap")
    if args.overlap and not args.chunk_tokens:
        raise UsageError("--overlap needs --chunk-tokens")
    if args.chunk_tokens:
        # The server checks this too, but after the upload. The upper limit is the model's, which only the server knows.
        if args.chunk_tokens < LEAST_CHUNK_TOKENS:
            raise UsageError(f"--chunk-tokens {args.chunk_tokens}: at least {LEAST_CHUNK_TOKENS}")
        if (args.overlap or 0) > args.chunk_tokens // 2:
            raise UsageError(f"--overlap {args.overlap}: at most half of --chunk-tokens, {args.chunk_tokens // 2}")
        static = {"max_chunk_size_tokens": args.chunk_tokens, "chunk_overlap_tokens": args.overlap or 0}
        return {"type": "static", "static": static}
    return {"type": "none" if args.no_chunking else "auto"}


async def ingest(server: Ingestions, plan: Plan, output: Output, show: Show = showing) -> int:
    """Uploads, starts, watches, fetches and cleans up; returns the exit code. `show` shows the progress."""
    files = _files(plan)
    if plan.folder:
        if plan.folder.filled:
            plan.folder.require_same(await server.dataset_id(plan.folder.dataset))
        plan.folder.claim()  # a folder that cannot be written is an error now, not after an hour of uploading
    async with uploading(server) as uploads:
        try:
            source = await _upload(plan, files, uploads, output, show) if files else {"urls": plan.sources}
            started = await _start(server, plan, source, uploads)
        except (RefusedError, UsageError):
            if plan.folder:
                plan.folder.abandon()
            raise
        output.note(f"started {started.id}", id=started.id)
        if plan.detach:
            output.result(started.id, started.raw)
            return OK
        ended = await watch(server, started.id, output, plan.status_options, show)
        if not ended.resumable:
            retryable = await _retryable_uploads(server, ended)
            uploads.ids = [file_id for file_id in uploads.ids if file_id not in retryable]
            uploads.needed = False
        if plan.folder and ended.status == "failed":
            fetch = f"embedq ingest --status {ended.id} --out {plan.sink.shown}"
            output.note(f"{plan.sink.shown} is as it was; to fetch what was loaded: {fetch}", id=ended.id)
        elif plan.folder:
            await follow(server, ended.id, plan.folder, plan.sink.shown, output)
        await report(server, ended, output, not_sent=uploads.not_sent)
    return OK if ended.succeeded and not uploads.not_sent else SOME_FAILED


def _files(plan: Plan) -> list[LocalFile]:
    """The files to be sent; [] where the server reads URLs."""
    remote = [source for source in plan.sources if "://" in source]
    if remote and len(remote) < len(plan.sources):
        raise UsageError("local files and URLs cannot be mixed in one ingestion; run the command for each kind")
    files = [] if remote else local_files(Path(source) for source in plan.sources)
    if len(files) > plan.max_files:
        raise UsageError(
            f"these are {len(files):,} files, and {plan.max_files:,} can be uploaded for one ingestion. Let the server "
            "read them itself: put their folder below its EMBEDQ_INGEST_ROOTS and name it as a URL, "
            "`embedq ingest file:///srv/docs`. Or run the command once for each part of them, with the same --out"
        )
    return files


async def _start(server: Ingestions, plan: Plan, source: Mapping[str, Any], uploads: Uploads) -> Ingestion:
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


async def _upload(
    plan: Plan, files: Sequence[LocalFile], uploads: Uploads, output: Output, show: Show
) -> dict[str, Any]:
    """Uploads the files that the server does not have; returns the source for the request."""
    asked = None if plan.body["mode"] == "upsert" else {**plan.body, "sink": plan.sink.body}
    with show("uploading", len(files), json_lines=output.json_lines) as progress:
        await uploads.send(files, progress.update, asked)
    if asked is not None:
        known, sent = sum("sha256" in document for document in uploads.documents), len(uploads.ids)
        output.note(f"{known:,} known, {sent:,} sent", known=known, sent=sent)
    if uploads.not_sent and (plan.body["mode"] == "sync" or not uploads.documents):
        first = uploads.not_sent[0]
        reason = "with --mode sync it would be deleted" if uploads.documents else "nothing is left to ingest"
        raise UsageError(f"{first.id} cannot be sent, and {reason}: {first.message}")
    return {"files": uploads.documents}


async def _retryable_uploads(server: Ingestions, ended: Ingestion) -> set[str]:
    """Uploads that `--retry` would read again: of documents that did not fail because of their content."""
    if not ended.failed or ended.error is not None or ended.status == "cancelled":
        return set()
    async with aclosing(server.failed(ended.id)) as failed:
        return {document.file_id async for document in failed if document.retryable}


async def watch(
    server: Ingestions, ingestion_id: str, output: Output, status_options: str | None = "", show: Show = showing
) -> Ingestion:
    """Shows an ingestion until it ends; returns it then. After an interruption, notes how to see it again.

    `status_options`: for that note; None: nothing continues.
    """
    pause_s = _FIRST_PAUSE_S
    try:
        with show("documents", None, json_lines=output.json_lines) as progress:
            while True:
                now = await server.status(ingestion_id)
                total = now.total if now.listing_complete else None
                progress.update(now.done, now.failed, total=total, details=progress_details(now))
                if now.ended:
                    return now
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * _SLOWING)
    except (asyncio.CancelledError, EmbedqClientError):
        if status_options is not None:
            status = f"embedq ingest --status {ingestion_id}{status_options}"
            output.note(f"{ingestion_id} goes on; look again with: {status}", id=ingestion_id)
        raise


async def follow(server: Ingestions, ingestion_id: str, folder: OutputFolder, shown: str, output: Output) -> None:
    """Fetches what is new of an ingestion's dataset into a folder."""
    parts, fetched = await folder.follow(
        lambda: server.output(ingestion_id), lambda name, into: server.download(ingestion_id, name, into)
    )
    output.note(f"{shown} holds {counted(parts)}, {fetched} of them new", parts=parts, fetched=fetched)
