"""`embedq search`, `dataset`: the datasets of a server; and, on its machine, upkeep of their files."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from embedq.cli.asking import asks, of_each
from embedq.cli.options import count, server_options, shared_options, utf8
from embedq.cli.output import Output
from embedq.cli.serve import become
from embedq.ingestions import Ingestions

_SHOWN_CHARS = 160
_UPKEEP = (
    ("backup", "FILE", "write a copy as it is now into a new file; loads wait meanwhile, searches do not"),
    ("check", "", "look for damage in the file"),
    ("vacuum", "", "give the room of what was deleted back to the disk; needs room for a second file"),
    ("rename", "TO", "give it another name; an ingestion that loads into it ends"),
)
"""Name, its second argument, what it does."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command that the parser is for."""
    if parser.prog.endswith(" search"):
        _add_search(parser)
        return
    shared_options(parser)
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    listing = parts.add_parser("list", help="print your datasets")
    deleting = parts.add_parser("delete", help="delete datasets with all their vectors; folders of --out stay")
    deleting.add_argument("names", nargs="+", metavar="NAME")
    for part, work in ((listing, _list), (deleting, _delete)):
        server_options(part, timeout_s=60)
        part.set_defaults(run=asks(Ingestions, work))
    for name, target, text in _UPKEEP:
        part = parts.add_parser(name, help=f"operators: {text}")
        part.add_argument("name", metavar="NAME")
        if target:
            part.add_argument("target", metavar=target)
        part.add_argument("--owner", default="anonymous", metavar="ID", help="whose it is (default: of no key)")
        part.add_argument("--data", metavar="DIR", help="data folder of the local stack that is meant")
        part.set_defaults(run=run_upkeep, what=name, target="")


def _add_search(parser: argparse.ArgumentParser) -> None:
    new = parser.add_argument
    new("query", type=utf8, metavar="QUERY")
    new("--dataset", required=True, metavar="NAME", help="of the server; or CONNECTION:TABLE, a table of PostgreSQL")
    modes = ["vector", "text", "hybrid"]
    new("--mode", choices=modes, help="by meaning (default), by the words of QUERY, or by both")
    filter_help = "chunks alone whose metadata has this value; document_id is the document's"
    new("--filter", type=_field, action="append", default=[], metavar="FIELD=VALUE", help=filter_help)
    new("-k", type=count, default=5, help="how many chunks (default: 5)")
    new("--model", metavar="NAME", help="another name of the dataset's model")
    server_options(parser, timeout_s=120)
    parser.set_defaults(run=asks(Ingestions, _search))


def run_upkeep(args: argparse.Namespace, _: Output) -> NoReturn:
    """Becomes the module of the server."""
    data = (f"--data={args.data}",) if args.data else ()
    target = (args.target,) if args.target else ()
    become("tasks.datasets.upkeep_command", args.what, f"--owner={args.owner}", *data, "--", args.name, *target)


async def _search(server: Ingestions, args: argparse.Namespace, output: Output) -> None:
    among = dict(args.filter) or None
    found = await server.search_dataset(args.dataset, args.query, args.k, mode=args.mode, model=args.model, among=among)
    print_chunks(found, output)


def print_chunks(chunks: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Prints what a search has found: score, document, the headings above, and how it begins."""
    for chunk in chunks:
        place = " > ".join([chunk["document_id"], *(chunk.get("headings") or ())])
        page = f" (page {chunk['page']})" if chunk.get("page") else ""
        text = " ".join((chunk.get("text") or "").split())
        text = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
        output.result(f"{chunk['score']:.4f}  {place}{page}  {text}", chunk)


def _field(text: str) -> tuple[str, str | float | bool]:
    """A field and its value: a number or a boolean where it is one, otherwise a text. Ids of documents are texts."""
    name, equals, value = utf8(text).partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    try:
        parsed = value if name == "document_id" else json.loads(value, parse_constant=str)  # NaN is no JSON
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, str | int | float) else value


async def _list(server: Ingestions, _args: argparse.Namespace, output: Output) -> None:
    async for dataset in server.datasets():
        vectors = f" of {dataset['vectors']}" if dataset["vectors"] else ""
        size = f"{dataset['rows']:,} rows, {dataset['documents']:,} documents, {dataset['bytes']:,} bytes"
        output.result(f"{dataset['name']}: {size}{vectors}", dataset)


async def _delete(server: Ingestions, args: argparse.Namespace, output: Output) -> int:
    async def delete(name: str) -> None:
        await server.delete_dataset(name)
        output.result(f"{name} deleted", {"name": name, "deleted": True})

    return (await of_each(delete, args.names, output))[1]
