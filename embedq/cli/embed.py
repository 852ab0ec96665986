"""`embedq embed`: vectors of a few texts, now."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from embedq.cli.asking import asks
from embedq.cli.exit_codes import UsageError
from embedq.cli.options import encoding_from_args, encoding_options, server_options, utf8
from embedq.cli.output import Output, digits
from embedq.service import EmbeddingService
from embedq.text_files import atomic_file, read_records


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "texts", type=utf8, nargs="+", metavar="TEXT", help="a text; a single - reads one per line from stdin"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npy", help="write one array instead of printing")
    encoding_options(parser)
    server_options(parser, timeout_s=120)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    """The exit code."""
    if args.output and args.output.suffix != ".npy":
        raise UsageError(f"{args.output}: the name must end with .npy")
    if args.texts == ["-"]:  # here, because Ctrl-C could not end an event loop that waits for a line
        args.texts = [record.text for record in read_records(sys.stdin.buffer)]
    if not all(args.texts):
        raise UsageError("an empty text has no vector")
    return asks(EmbeddingService, _embed)(args, output)


async def _embed(service: EmbeddingService, args: argparse.Namespace, output: Output) -> None:
    vectors = await service.get_embeddings(args.texts, **encoding_from_args(args))
    if args.output:
        with atomic_file(args.output) as file:
            np.save(file, np.asarray(vectors, dtype=np.float32))
        output.note(f"wrote {args.output}", rows=len(vectors))
        return
    for index, (text, vector) in enumerate(zip(args.texts, vectors, strict=True)):
        shown = digits(vector)
        output.result(json.dumps(shown), {"index": index, "text": text, "embedding": shown})
