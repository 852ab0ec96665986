"""`embedq embed`: vectors of a few texts, now."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embedq.atomic_file import atomic_file
from embedq.cli.arguments import utf8
from embedq.cli.exit_codes import OK, UsageError
from embedq.cli.options import encoding_from_args, encoding_options, server_options, service_from_args
from embedq.cli.output import Output, digits, standard_input
from embedq.records import read_records


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "texts", type=utf8, nargs="+", metavar="TEXT", help="a text; a single - reads one per line from stdin"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npy", help="write one array instead of printing")
    encoding_options(parser)
    server_options(parser, timeout_s=120)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    if args.output and args.output.suffix != ".npy":
        raise UsageError(f"{args.output}: the name must end with .npy")
    texts = args.texts
    if texts == ["-"]:  # here, because Ctrl-C could not end an event loop that waits for a line
        texts = [record.text for record in read_records(standard_input(), "lines")]
    if not all(texts):
        raise UsageError("an empty text has no vector")
    return asyncio.run(_embed(args, texts, Output(args.json)))


async def _embed(args: argparse.Namespace, texts: Sequence[str], output: Output) -> int:
    async with service_from_args(args, output) as service:
        vectors = await service.get_embeddings(texts, **encoding_from_args(args))
    if args.output:
        with atomic_file(args.output) as file:
            np.save(file, np.asarray(vectors, dtype=np.float32))
        output.note(f"wrote {args.output}", rows=len(vectors))
        return OK
    for index, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
        shown = digits(vector)
        output.result(json.dumps(shown), {"index": index, "text": text, "embedding": shown})
    return OK
