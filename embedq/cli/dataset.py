"""`embedq dataset`: lists and deletes what ingestions have loaded into Parquet files on the server."""

import argparse
import asyncio

from embedq.cli.exit_codes import OK
from embedq.cli.options import ingestions_from_args, server_options
from embedq.cli.output import Output


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
    async with ingestions_from_args(args, output) as server:
        for name in args.names:
            await server.delete_dataset(name)
            output.result(f"{name} deleted", {"name": name, "deleted": True})
        if not args.names:
            async for dataset in server.datasets():
                vectors = f" of {dataset['vectors']}" if dataset["vectors"] else ""
                size = f"{dataset['rows']:,} rows, {dataset['documents']:,} documents, {dataset['bytes']:,} bytes"
                output.result(f"{dataset['name']}: {size}{vectors}", dataset)
    return OK
