"""`embedq search`: the nearest texts to a query, in files here or in a dataset on the server."""

import argparse
import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from embedq.cli.exit_codes import OK, UsageError
from embedq.cli.options import (
    count,
    encoding_from_args,
    encoding_options,
    ingestions_from_args,
    server_options,
    service_from_args,
    utf8,
)
from embedq.cli.output import Output
from embedq.collection import VECTORS, Collection, open_collection
from embedq.errors import BadInputError
from embedq.output_folder import NOTES
from embedq.service import EmbeddingService
from embedq.vector_search import FoundRow, Hit, ParquetParts, nearest, parts_in

_SHOWN_CHARS = 160
_TASK_PREFIX = "task_"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("query", type=utf8, metavar="QUERY")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--in",
        dest="source",
        metavar="DIR_OR_ID",
        help="a folder of `ingest --out` or of `submit --out`, a .parquet or .npy file, or a task id (its texts are "
        "not known, only row numbers)",
    )
    source.add_argument(
        "--dataset",
        metavar="NAME",
        help="a dataset on the server, which searches it there; or CONNECTION:TABLE, a table of PostgreSQL",
    )
    parser.add_argument(
        "--mode",
        choices=["vector", "text", "hybrid"],
        help="with --dataset: by meaning (default), by the words of QUERY, or by both",
    )
    parser.add_argument(
        "--filter",
        type=_field,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="with --dataset: chunks alone whose metadata has this value; document_id is the document's",
    )
    parser.add_argument("-k", type=count, default=5, help="how many rows (default: 5)")
    encoding_options(parser)
    server_options(parser, timeout_s=120)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    output = Output(args.json)
    if args.mode and args.dataset is None:
        raise UsageError("--mode needs --dataset: files here are searched by their vectors")
    return asyncio.run(_search(args, output) if args.dataset is None else _search_dataset(args, output))


def shown(text: str, limit: int = _SHOWN_CHARS) -> str:
    """The beginning of a text on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


async def _search_dataset(args: argparse.Namespace, output: Output) -> int:
    if encoding_from_args(args):
        raise UsageError("with --dataset, the dataset says how a text becomes a vector; leave those options out")
    async with ingestions_from_args(args, output) as server:
        chunks = await server.search_dataset(
            args.dataset, args.query, args.k, mode=args.mode, model=args.model, among=dict(args.filter) or None
        )
    for chunk in chunks:
        _print_chunk(output, chunk["document_id"], chunk, chunk)
    return OK


async def _search(args: argparse.Namespace, output: Output) -> int:
    async with service_from_args(args, output) as service:
        source = await _open(args.source, service)
        options = encoding_from_args(args)
        # Texts of a task are neither documents nor queries: what is compared with them has no purpose either.
        as_query = partial(service.get_embedding, input_type="query")
        embed = as_query if isinstance(source, ParquetParts) else service.get_embedding
        vector = await embed(args.query, **options)
        query = np.asarray(vector, dtype=np.float32)
    try:
        if isinstance(source, ParquetParts):
            show = partial(print_rows, source.nearest(query, args.k))
        else:
            show = partial(_print_hits, source, nearest(source.vectors, query, args.k))
    except ValueError as error:
        raise UsageError(str(error)) from None
    show(output)
    return OK


def print_rows(rows: Sequence[FoundRow], output: Output) -> None:
    """Prints rows of a dataset: score, document, the headings above them, and how they begin."""
    for hit in rows:
        scored = {"score": round(hit.score, 6), **hit.fields}
        _print_chunk(output, hit.fields.get("doc_id"), hit.fields, scored)


def _print_chunk(output: Output, document: object, row: Mapping[str, Any], scored: Mapping[str, Any]) -> None:
    place = " > ".join([str(document), *(row.get("headings") or ())])
    page = f" (page {row['page']})" if row.get("page") else ""
    # The URI of an upload says nothing to people; programs get it.
    output.result(f"{scored['score']:.4f}  {place}{page}  {shown(row.get('text') or '')}", dict(scored))


def _field(text: str) -> tuple[str, str | float | bool]:
    """A field and its value: a number or a boolean where it is one, otherwise a text. Ids of documents are texts."""
    name, equals, value = utf8(text).partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    if name == "document_id":
        return name, value
    try:
        parsed = json.loads(value, parse_constant=str)  # NaN is no JSON
    except ValueError:
        return name, value
    return name, parsed if isinstance(parsed, str | int | float) else value


async def _open(source: str, service: EmbeddingService) -> Collection | ParquetParts:
    if _is_task(source):
        return Collection(await service.result(source), texts_file=None)
    path = Path(source)
    parts = parts_in(path)
    if not parts and (path / NOTES).is_file() and not (path / VECTORS).is_file():
        fetch = f"embedq ingest --status ING --out {shlex.quote(source)}"
        raise BadInputError(f"{source} holds no documents: its dataset has none, or `{fetch}` is to fetch them")
    return ParquetParts(parts) if parts else open_collection(path)


def _is_task(source: str) -> bool:
    return source.startswith(_TASK_PREFIX) and not Path(source).exists()


def _print_hits(source: Collection, hits: Sequence[Hit], output: Output) -> None:
    rows = source.rows([hit.row for hit in hits])
    for hit in hits:
        row: Mapping[str, Any] = rows.get(hit.row, {})
        name = row.get("id", f"row {hit.row}")
        text = f"  {shown(row['text'])}" if "text" in row else ""
        output.result(f"{hit.score:.4f}  {name}{text}", {"score": round(hit.score, 6), "row": hit.row, **row})
