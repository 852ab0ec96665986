"""`embedq dataset`: the datasets of a server; and, on its machine, what an operator does with their files."""

import argparse
import asyncio
from typing import NoReturn

from embedq.cli.exit_codes import OK
from embedq.cli.options import ingestions_from_args, server_options
from embedq.cli.output import Output
from embedq.cli.serve import become

_UPKEEP = (
    ("backup", "FILE", "write a copy as it is now into a new file; loads wait meanwhile, searches do not"),
    ("check", "", "look for damage in the file"),
    ("vacuum", "", "give the room of what was deleted back to the disk; needs room for a second file"),
    ("rename", "TO", "give it another name; an ingestion that loads into it ends"),
)
"""Name, its second argument, what it does."""


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
    for name, target, text in _UPKEEP:
        part = parts.add_parser(name, help=f"operators: {text}")
        part.add_argument("name", metavar="NAME")
        if target:
            part.add_argument("target", metavar=target)
        part.add_argument("--owner", default="anonymous", metavar="ID", help="whose it is (default: of no key)")
        part.add_argument("--data", metavar="DIR", help="data folder of the local stack that is meant")
        part.set_defaults(run=run_upkeep, what=name, target="")


def run(args: argparse.Namespace) -> int:
    """The exit code of `list` and `delete`."""
    return asyncio.run(_dataset(args, Output(args.json)))


def run_upkeep(args: argparse.Namespace) -> NoReturn:
    """Becomes the module of the server."""
    data = (f"--data={args.data}",) if args.data else ()
    target = (args.target,) if args.target else ()
    become("tasks.datasets.upkeep_command", args.what, f"--owner={args.owner}", *data, "--", args.name, *target)


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
