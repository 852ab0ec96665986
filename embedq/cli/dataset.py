"""`embedq dataset`: lists and deletes what ingestions have loaded into Parquet files on the server."""

import argparse
import asyncio

from embedq.cli.exits import OK, UsageError
from embedq.cli.options import server_options
from embedq.cli.output import Output
from embedq.ingestions import Ingestions


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    listing = parts.add_parser("list", help="print your datasets")
    listing.set_defaults(run=run, names=())
    deleting = parts.add_parser("delete", help="delete datasets with all their vectors; folders of --out stay")
    deleting.add_argument("names", nargs="+", metavar="NAME")
    deleting.set_defaults(run=run)
    for part in (listing, deleting):
        server_options(part, timeout_s=60)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_dataset(args, Output(args.json)))


async def _dataset(args: argparse.Namespace, output: Output) -> int:
    try:
        server = Ingestions(args.url, timeout_s=args.timeout, on_retry=output.retry)
    except ValueError as error:
        raise UsageError(str(error)) from None
    async with server:
        for name in args.names:
            await server.delete_dataset(name)
            output.result(f"{name} deleted", {"name": name, "deleted": True})
        if not args.names:
            async for found in server.datasets():
                held = f" of {found['vectors']}" if found["vectors"] else ""
                size = f"{found['rows']:,} rows, {found['documents']:,} documents, {found['bytes']:,} bytes"
                output.result(f"{found['name']}: {size}{held}", found)
    return OK
