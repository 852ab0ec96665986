"""`embedq ingest`: documents in, vectors out; and a look at ingestions under way."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from embedq.cli.exits import INTERRUPTED, OK, SOME_FAILED, UsageError
from embedq.cli.ingesting import Plan, Sink, follow, ingest, watch
from embedq.cli.limit import within
from embedq.cli.options import count, encoding_of, encoding_options, server_options
from embedq.cli.output import Output
from embedq.cli.report import describe, list_failures, report
from embedq.ingestions import Ingestions
from embedq.outputfolder import OutputFolder

DEFAULT_OUT = "vectors"
LEAST_CHUNK_TOKENS = 16
_POSTGRESQL = "postgresql:"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = "Ctrl-C detaches: the ingestion goes on, and --status looks at it again."
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="local files and folders; or URLs and globs that the server reads"
    )
    parser.add_argument(
        "--out",
        metavar="DIR|postgresql:NAME/TABLE",
        help=f"a folder for Parquet files (default: {DEFAULT_OUT}), or a table over a connection of the server",
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
    parser.add_argument(
        "--keep-uploads",
        action="store_true",
        help="leave the uploads on the server for seven days: the next run with this option sends only what is new",
    )
    parser.add_argument("--detach", action="store_true", help="start it, print its id, and leave")
    about = parser.add_mutually_exclusive_group()
    about.add_argument("--status", metavar="ING", help="print where an ingestion is; with --out fetch its output")
    about.add_argument("--cancel", metavar="ING", help="end an ingestion; what is loaded stays")
    about.add_argument("--errors", metavar="ING", help="print every document that has failed, and why")
    about.add_argument("--retry", metavar="ING", help="try its failed documents again")
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
    known = args.status or args.errors or args.cancel or args.retry
    if bool(known) == bool(args.sources):
        raise UsageError("name either sources to ingest, or an ingestion with --status, --errors, --cancel or --retry")
    work = _look(args, output) if known else _ingest(args, output)
    try:
        return asyncio.run(within(args.timeout, work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.note("interrupted")  # what goes on, if anything, has been said
        return INTERRUPTED


def body_of(args: argparse.Namespace) -> dict[str, Any]:
    """The request without source and sink.

    Raises:
        UsageError: options that exclude each other.
    """
    body: dict[str, Any] = {"mode": args.mode, "chunking": _chunking(args), **encoding_of(args)}
    if args.model:
        body["model"] = args.model
    if args.on_conflict:
        body["on_conflict"] = args.on_conflict
    if args.dry_run:
        body["dry_run"] = True
    return body


def fields_of(args: argparse.Namespace) -> dict[str, Any]:
    """What was said about fields of records; {} for nothing."""
    metadata = "*" if args.metadata_field == ["*"] else args.metadata_field
    given = {"id": args.id_field, "text": args.text_field, "metadata": metadata}
    return {name: value for name, value in given.items() if value}


def sink_of(out: str | None, server: str) -> Sink:
    """Where the vectors go.

    Raises:
        UsageError, BadCollectionError: it cannot be there.
    """
    out = DEFAULT_OUT if out is None else out
    if not out.startswith(_POSTGRESQL):
        folder = OutputFolder(Path(out), server)
        return Sink({"type": "parquet", "dataset": folder.dataset}, folder, out)
    name, slash, table = out.removeprefix(_POSTGRESQL).strip("/").partition("/")
    if not (name and slash and table):
        raise UsageError("--out must look like postgresql:NAME/TABLE, with a connection that the server knows as NAME")
    return Sink({"type": "postgresql", "name": name, "table": table}, None, out)


def _chunking(args: argparse.Namespace) -> dict[str, Any]:
    if args.no_chunking and (args.chunk_tokens or args.overlap):
        raise UsageError("--no-chunking has no use for --chunk-tokens and --overlap")
    if args.overlap and not args.chunk_tokens:
        raise UsageError("--overlap needs --chunk-tokens")
    if args.chunk_tokens:
        # As the server says, but before all is uploaded. What the model reads at most is known there alone.
        if args.chunk_tokens < LEAST_CHUNK_TOKENS:
            raise UsageError(f"--chunk-tokens {args.chunk_tokens}: at least {LEAST_CHUNK_TOKENS}")
        if (args.overlap or 0) > args.chunk_tokens // 2:
            raise UsageError(f"--overlap {args.overlap}: at most half of --chunk-tokens, {args.chunk_tokens // 2}")
        static = {"max_chunk_size_tokens": args.chunk_tokens, "chunk_overlap_tokens": args.overlap or 0}
        return {"type": "static", "static": static}
    return {"type": "none" if args.no_chunking else "auto"}


async def _ingest(args: argparse.Namespace, output: Output) -> int:
    body, fields = body_of(args), fields_of(args)
    async with _server(args, output) as server:
        plan = Plan(args.sources, fields, body, sink_of(args.out, server.url), args.detach, args.keep_uploads)
        return await ingest(server, plan, output)


async def _look(args: argparse.Namespace, output: Output) -> int:
    async with _server(args, output) as server:
        if args.errors:
            return SOME_FAILED if await list_failures(server, args.errors, output) else OK
        if args.cancel:
            found = await server.cancel(args.cancel)
        elif args.retry:
            found = await server.retry(args.retry)
            if not args.detach:
                found = await watch(server, found.id, output)
        else:
            found = await server.status(args.status)
        if args.out and found.ended:
            sink = found.raw["sink"]
            if sink["type"] != "parquet":
                raise UsageError("only the output of a Parquet sink can be fetched")
            dataset = sink.get("dataset", found.id)  # without a name it has that of the ingestion
            folder = OutputFolder(Path(args.out), server.url, dataset)
            await follow(server, found.id, folder, args.out, output)
        if not found.ended:
            output.result(describe(found), found.raw)
            return OK
        if args.retry and not args.out and found.raw["sink"]["type"] == "parquet":
            output.note(f"to fetch its files: embedq ingest --status {found.id} --out DIR", id=found.id)
        await report(server, found, output)
        return OK if found.succeeded or args.cancel else SOME_FAILED


def _server(args: argparse.Namespace, output: Output) -> Ingestions:
    limit_s = {} if args.timeout is None else {"timeout_s": args.timeout}
    try:
        return Ingestions(args.url, on_retry=output.retry, **limit_s)
    except ValueError as error:
        raise UsageError(str(error)) from None
