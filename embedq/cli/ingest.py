"""`embedq ingest`: uploads documents, starts an ingestion, watches it, fetches its vectors; handles existing ones."""

import argparse
import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

from embedq.cli.asking import asks, client_from_args
from embedq.cli.exit_codes import OK, SOME_FAILED, UsageError
from embedq.cli.ingest_report import describe, list_faults, report, show
from embedq.cli.options import count, encoding_from_args, encoding_options, server_options
from embedq.cli.output import Output
from embedq.cli.progress import Progress
from embedq.cli.uploads import Uploads
from embedq.errors import EmbedqClientError
from embedq.ingestions import Ingestions
from embedq.local_files import LocalFile, local_files
from embedq.output_folder import OutputFolder, counted
from embedq.transport import Job

DEFAULT_OUT = "vectors"
_POSTGRESQL = "postgresql:"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _SLOWING = 0.2, 2.0, 1.25


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = "Ctrl-C detaches: the ingestion goes on, and --status looks at it again."
    new = parser.add_argument
    new(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="local files and folders, or URLs that the server reads; - is stdin",
    )
    new("--include", action="append", default=[], metavar="GLOB", help="of local files these alone; may be repeated")
    new("--exclude", action="append", default=[], metavar="GLOB", help="of local files not these, or not this folder")
    new("--stdin-name", default="stdin.txt", metavar="NAME", help="of what - reads: its id, and its kind by the ending")
    new("--dataset", metavar="NAME", help="load into this dataset of the server; it is fetched with --out alone")
    out_help = f"a folder that gets the dataset as Parquet files (default: {DEFAULT_OUT}), or a table of PostgreSQL"
    new("--out", metavar="DIR|postgresql:NAME/TABLE", help=out_help)
    mode_help = "upsert: do unchanged documents again too; sync: also delete those that are gone from the source"
    new("--mode", choices=["skip_unchanged", "upsert", "sync"], default="skip_unchanged", help=mode_help)
    conflict_help = "of a record whose id another file has brought (default: fail; replace with --mode upsert or sync)"
    new("--on-conflict", choices=["fail", "replace"], help=conflict_help)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--chunk-tokens", type=count, metavar="N", help="tokens of one chunk (default: by structure)")
    size.add_argument("--no-chunking", action="store_true", help="one vector for each document")
    new("--overlap", type=count, default=0, metavar="N", help="tokens that a chunk shares with the one before")
    new("--text-field", action="append", metavar="F", help="of JSONL, CSV, Parquet: the text; several are joined")
    new("--id-field", metavar="F", help="likewise: the document's id")
    new("--metadata-field", action="append", metavar="F", help="likewise: kept with each chunk; '*' for all others")
    new("--dry-run", action="store_true", help="count documents, chunks and tokens; load nothing")
    new("--detach", action="store_true", help="start it, print its id, and leave")
    about = parser.add_mutually_exclusive_group()
    about.add_argument("--status", metavar="ING", help="print where an ingestion is; with --out fetch its output")
    about.add_argument("--cancel", metavar="ING", help="end an ingestion; what is loaded stays")
    about.add_argument("--errors", metavar="ING", help="print every document that has failed or has warnings, and why")
    about.add_argument("--retry", metavar="ING", help="try its failed documents again")
    encoding_options(parser, truncating=False)
    server_options(parser, timeout_s=None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""
    existing = args.status or args.errors or args.cancel or args.retry
    if bool(existing) == bool(args.sources):
        raise UsageError("name either sources to ingest, or an ingestion with --status, --errors, --cancel or --retry")
    if existing:
        return asks(Ingestions, _about_existing, whole=True)(args, output)
    body = body_from_args(args)
    body["sink"], folder = sink_from_args(args, client_from_args(Ingestions, args, output).address)
    with TemporaryDirectory(prefix="embedq-") as spool:
        # Standard input is read here: Ctrl-C could not end an event loop that waits for it.
        files = _chosen_files(args, Path(spool))
        if not files:
            body["source"]["urls"] = args.sources

        async def work(server: Ingestions, args: argparse.Namespace, output: Output) -> int:
            return await ingest(server, files, body, folder, output, detach=args.detach)

        return asks(Ingestions, work, whole=True)(args, output)


def body_from_args(args: argparse.Namespace) -> dict[str, Any]:
    """The request without what it reads and where it loads.

    Raises:
        UsageError: options that exclude each other.
    """
    metadata = "*" if args.metadata_field == ["*"] else args.metadata_field
    fields = {"id": args.id_field, "text": args.text_field, "metadata": metadata}
    given = {name: value for name, value in fields.items() if value}
    optional = {"model": args.model, "on_conflict": args.on_conflict, "dry_run": args.dry_run}
    return {
        "mode": args.mode,
        "chunking": _chunking_from_args(args),
        "source": {"fields": given} if given else {},
        **encoding_from_args(args),
        **{name: value for name, value in optional.items() if value},
    }


def _chunking_from_args(args: argparse.Namespace) -> dict[str, Any]:
    if args.overlap and not args.chunk_tokens:
        raise UsageError("--overlap needs --chunk-tokens")
    if not args.chunk_tokens:
        return {"type": "none" if args.no_chunking else "auto"}
    static = {"max_chunk_size_tokens": args.chunk_tokens, "chunk_overlap_tokens": args.overlap}
    return {"type": "static", "static": static}


def sink_from_args(args: argparse.Namespace, server: str) -> tuple[dict[str, Any], OutputFolder | None]:
    """Where vectors go, and the folder that follows it on this side, if anything will be loaded into one.

    Raises:
        UsageError, BadInputError: it cannot be there.
    """
    out = args.out or ("" if args.dataset else DEFAULT_OUT)
    if not out:
        return {"type": "dataset", "dataset": args.dataset}, None
    if not out.startswith(_POSTGRESQL):
        folder = OutputFolder(Path(out), server, args.dataset)
        return {"type": "dataset", "dataset": folder.dataset}, None if args.dry_run else folder
    name, slash, table = out.removeprefix(_POSTGRESQL).strip("/").partition("/")
    if args.dataset or not (name and slash and table):
        raise UsageError(
            "--out must look like postgresql:NAME/TABLE, with a connection that the server knows as NAME, and without "
            "--dataset"
        )
    return {"type": "postgresql", "name": name, "table": table}, None


def _chosen_files(args: argparse.Namespace, spool: Path) -> list[LocalFile]:
    """The local files that are meant; [] where the server reads URLs. `-` is what comes from standard input.

    Raises:
        UsageError, BadInputError: they cannot be ingested together, or at all.
    """
    urls = ["://" in source for source in args.sources]
    if any(urls):
        if not all(urls):
            raise UsageError("local files and URLs cannot be mixed in one ingestion; run the command for each kind")
        if args.include or args.exclude:
            raise UsageError(
                "--include and --exclude are for local files; a URL may be a pattern, as in 's3://b/**/*.md'"
            )
        return []
    if args.sources == ["-"]:
        stdin = LocalFile(args.stdin_name, spool / Path(args.stdin_name).name)
        with stdin.path.open("wb") as file:  # on the disk, because it is read twice
            copyfileobj(sys.stdin.buffer, file)
        return [stdin]
    if "-" in args.sources:
        raise UsageError("- (standard input) is a source of its own; run the command for the others")
    return local_files([Path(source) for source in args.sources], args.include, args.exclude)


async def ingest(
    server: Ingestions,
    files: Sequence[LocalFile],
    body: dict[str, Any],
    folder: OutputFolder | None,
    output: Output,
    *,
    detach: bool = False,
) -> int:
    """Uploads, starts, watches, fetches and cleans up; returns the exit code.

    Args:
        server: the client.
        files: to be sent; none: `body` says what the server reads.
        body: the request.
        folder: that follows its dataset.
        output: what is printed.
        detach: whether it ends as soon as the ingestion has started.
    """
    if folder and folder.parts:
        folder.require_same(await server.dataset_id(folder.dataset))
    uploads = Uploads(server, output)
    try:
        unknown = await uploads.unknown(files, body) if files else []
        if folder:
            folder.claim()  # a folder that cannot be written is an error now, not after an hour of uploading
        if files:
            await uploads.send(unknown, body)
        started = await uploads.start(body)
        output.note(f"started {started.id}", id=started.id)
        if detach:
            output.result(started.id, started)
            return OK
        ended = await watch(server, started.id, output, folder)
        await uploads.release(ended)
    except asyncio.CancelledError:
        if not uploads.needed:
            output.note("nothing was started")
        raise
    finally:
        await uploads.clean_up()
    if folder and ended.status == "failed":
        output.note(f"{folder.folder} is as it was; to fetch what was loaded: {_status(ended.id, folder)}")
    elif folder:
        await _fetch(server, ended.id, folder, output)
    if ended["sink"]["type"] == "dataset" and not ended["dry_run"] and ended["file_counts"]["completed"]:
        output.note(f"to search it: embedq search QUERY --dataset {ended['sink']['dataset']}")
    return await report(server, ended, output)


async def watch(server: Ingestions, ingestion_id: str, output: Output, folder: OutputFolder | None = None) -> Job:
    """Shows an ingestion until it ends; returns it then. After an interruption, notes how to see it again."""
    pause_s = _FIRST_PAUSE_S
    try:
        with Progress("chunks", json_lines=output.json_lines) as progress:
            while True:
                now = await server.status(ingestion_id)
                show(progress, now)
                if now.ended:
                    return now
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * _SLOWING)
    except (asyncio.CancelledError, EmbedqClientError):
        output.note(f"{ingestion_id} goes on; look again with: {_status(ingestion_id, folder)}", id=ingestion_id)
        raise


def _status(ingestion_id: str, folder: OutputFolder | None) -> str:
    return f"embedq ingest --status {ingestion_id}" + (f" --out {shlex.quote(str(folder.folder))}" if folder else "")


async def _fetch(server: Ingestions, ingestion_id: str, folder: OutputFolder, output: Output) -> None:
    """Fetches what is new of an ingestion's dataset into a folder."""
    try:
        fetched = await folder.follow(server, ingestion_id)
    except (asyncio.CancelledError, EmbedqClientError):
        output.note(f"to fetch its files: {_status(ingestion_id, folder)}", id=ingestion_id)
        raise
    files = len(folder.parts)
    output.note(f"{folder.folder} holds {counted(files)}, {fetched} of them new", parts=files, fetched=fetched)


async def _about_existing(server: Ingestions, args: argparse.Namespace, output: Output) -> int:
    if args.errors:
        return SOME_FAILED if await list_faults(server, args.errors, output) else OK
    if args.cancel:
        ingestion = await server.cancel(args.cancel)
    elif args.retry:
        ingestion = await server.retry(args.retry)
        ingestion = ingestion if args.detach else await watch(server, ingestion.id, output)
    else:
        ingestion = await server.status(args.status)
    sink = ingestion["sink"]
    if not ingestion.ended:
        output.result(describe(ingestion), ingestion)
        return OK
    if args.out:
        if sink["type"] != "dataset":
            raise UsageError("only a dataset can be fetched, not a table of PostgreSQL")
        dataset = sink.get("dataset", ingestion.id)  # without a name it has that of the ingestion
        await _fetch(server, ingestion.id, OutputFolder(Path(args.out), server.address, dataset), output)
    elif args.retry and sink["type"] == "dataset":
        output.note(f"to fetch its files: embedq ingest --status {ingestion.id} --out DIR", id=ingestion.id)
    code = await report(server, ingestion, output)
    return OK if args.cancel else code
