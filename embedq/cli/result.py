"""`embedq result`: the vectors of a task."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from embedq.answers import Vectors
from embedq.cli.exits import OK, SOME_FAILED, UsageError
from embedq.cli.options import server_options, service_of
from embedq.cli.output import NOWHERE, Output, digits
from embedq.task import ItemError
from embedq.wholefile import whole_file


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("id", metavar="ID")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="a .npy array or .jsonl lines (default: JSON lines on stdout)"
    )
    server_options(parser, timeout_s=600)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    if args.output and args.output.suffix not in {".npy", ".jsonl"}:
        raise UsageError(f"{args.output}: the name must end with .npy or .jsonl")
    return asyncio.run(_result(args, Output(args.json)))


def lines_of(vectors: Vectors, errors: Mapping[int, ItemError]) -> Iterator[dict[str, Any]]:
    """One object per text, in order: its embedding, or its error."""
    for index, vector in enumerate(vectors):
        if index in errors:
            yield {"index": index, "error": {"code": errors[index].code, "message": errors[index].message}}
        else:
            yield {"index": index, "embedding": digits(vector.tolist())}


async def _result(args: argparse.Namespace, output: Output) -> int:
    async with service_of(args, output) as service:
        task = await service.wait(args.id, args.timeout)
        vectors = await service.result(args.id)
        errors = {} if task.succeeded else await service.item_errors(args.id)
    _write(args.output, vectors, errors)
    for index, error in sorted(errors.items()):
        output.note(f"text {index} has no vector: {error.message}", index=index, code=error.code)
    return SOME_FAILED if errors else OK


def _write(path: Path | None, vectors: Vectors, errors: Mapping[int, ItemError]) -> None:
    if path is None:
        if sys.stdout is None:
            raise UsageError(NOWHERE)
        for line in lines_of(vectors, errors):
            sys.stdout.write(json.dumps(line) + "\n")
    else:
        with whole_file(path) as file:
            if path.suffix == ".npy":
                np.save(file, vectors)
            else:
                file.writelines(json.dumps(line).encode() + b"\n" for line in lines_of(vectors, errors))
