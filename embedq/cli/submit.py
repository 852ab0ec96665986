"""`embedq submit`: the texts of a file as tasks, however many there are."""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from embedq import collection
from embedq.cli.exit_codes import OK, SOME_FAILED
from embedq.cli.options import encoding_from_args, encoding_options, server_options, service_from_args, within
from embedq.cli.output import Output
from embedq.cli.progress import TaskProgress, showing
from embedq.concurrency import in_order
from embedq.errors import BadInputError, EmbedqClientError, RefusedError
from embedq.records import Record, format_from_name, read_records
from embedq.responses import Vectors
from embedq.service import EmbeddingService
from embedq.split import MAX_TEXTS, halve_refused, json_bytes, split
from embedq.task import Task, TextError

IN_FLIGHT = 8
"""Tasks waited for at once. Bounds memory and keeps the worker busy."""


@dataclass(frozen=True, slots=True)
class FinishedPiece:
    """The outcome of one piece of the file; without vectors unless they were wanted."""

    records: list[Record]
    task: Task
    vectors: Vectors | None
    errors: dict[int, TextError]


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = "Splits over the server's request limit by itself and prints the task ids, one per line."
    parser.add_argument("file", metavar="FILE", help="one text per line, or .jsonl with objects; - is stdin")
    parser.add_argument("--format", choices=["auto", "lines", "jsonl"], default="auto", help="auto: by the file's name")
    parser.add_argument(
        "--lane", choices=["online", "bulk"], default="bulk", help="bulk (default) lets others go first"
    )
    parser.add_argument("--wait", action="store_true", help="wait until all tasks end")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="wait, and write DIR/embeddings.npy and DIR/texts.jsonl"
    )
    encoding_options(parser)
    server_options(parser, timeout_s=None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    output = Output(args.json)
    work = _submit_and_wait(args, output) if args.wait or args.out else _submit(args, output)
    return asyncio.run(within(args.timeout, work))


async def _submit(args: argparse.Namespace, output: Output) -> int:
    with _records(args) as records:
        async with service_from_args(args, output) as service:
            # One after the other: ids in the order of the file, and none unprinted when a later piece is refused.
            for piece in _pieces(records):
                await _submit_piece(service, piece, args, output)
    _note_if_empty(args, output)
    return OK


async def _submit_and_wait(args: argparse.Namespace, output: Output) -> int:
    with ExitStack() as stack:
        records = stack.enter_context(_records(args))
        writer = stack.enter_context(collection.writing(args.out)) if args.out else None
        display = stack.enter_context(showing("embedding", _count(args.file), json_lines=args.json))
        progress = TaskProgress(display)
        # Many are waited for at once, but submitted one by one: a script that loops over the ids that are printed must
        # get the vectors in the order of the file.
        turn = asyncio.Lock()
        async with service_from_args(args, output) as service:

            async def finish(part: list[Record], task: Task) -> FinishedPiece:
                task = await service.wait(task.id, on_change=progress.changed)
                vectors = await service.result(task.id) if writer else None
                return FinishedPiece(part, task, vectors, {} if task.succeeded else await service.item_errors(task.id))

            async def finish_all(piece: list[Record]) -> list[FinishedPiece]:
                async with turn:
                    submitted = await _submit_piece(service, piece, args, output)
                return [await finish(part, task) for part, task in submitted]

            with _note_how_to_continue(output):
                async with aclosing(in_order(finish_all, _pieces(records), limit=IN_FLIGHT)) as pieces:
                    async for done in (one async for finished in pieces for one in finished):
                        _report(done, output)
                        if writer and done.vectors is not None:
                            writer.append(done.records, done.vectors, done.errors)
    _note_if_empty(args, output)
    if args.out:
        output.note(f"wrote {args.out / collection.VECTORS} and {collection.TEXTS}", texts=progress.done)
    return OK if progress.all_succeeded else SOME_FAILED


def _note_if_empty(args: argparse.Namespace, output: Output) -> None:
    if not output.results:
        output.note(f"there is no text in {_shown(args)}: nothing was submitted")


@contextmanager
def _note_how_to_continue(output: Output) -> Iterator[None]:
    """If the block ends while tasks go on, notes how to get their vectors. A second `submit` would do all again."""
    try:
        yield
    except (asyncio.CancelledError, EmbedqClientError):
        if output.results:
            output.note(
                "nothing was written; fetch the tasks above, which are in the order of the file, one by one: "
                "embedq result ID -o NAME.npy"
            )
        raise


async def _submit_piece(
    service: EmbeddingService, piece: list[Record], args: argparse.Namespace, output: Output
) -> list[tuple[list[Record], Task]]:
    """Submits one task, or several where the server takes less at once; prints the id of a task at once."""
    submitted = []
    async with aclosing(halve_refused(lambda part: _send(service, part, args), piece)) as parts:
        async for part, task in parts:
            output.result(task.id, _submitted(task, part))
            submitted.append((part, task))
    return submitted


async def _send(service: EmbeddingService, piece: list[Record], args: argparse.Namespace) -> Task:
    try:
        return await service.submit([record.text for record in piece], lane=args.lane, **encoding_from_args(args))
    except RefusedError as error:
        index = error.input_index
        if index is None or index >= len(piece):
            raise
        # The server counts texts of one request; the reader knows lines of a file.
        raise error.reworded(f"line {piece[index].line}: {error.message}", error.param) from error


def _report(done: FinishedPiece, output: Output) -> None:
    for index, error in sorted(done.errors.items()):
        line = done.records[index].line
        output.note(f"line {line} has no vector: {error.message}", line=line, code=error.code)


def _submitted(task: Task, piece: list[Record]) -> dict[str, Any]:
    return {"id": task.id, "texts": len(piece), "first_line": piece[0].line, "last_line": piece[-1].line}


def _pieces(records: Iterator[Record]) -> Iterator[list[Record]]:
    return split(records, lambda record: json_bytes(record.text), max_items=MAX_TEXTS)


@contextmanager
def _records(args: argparse.Namespace) -> Iterator[Iterator[Record]]:
    form = format_from_name(args.file) if args.format == "auto" else args.format
    with _opened(args.file) as file:
        try:
            yield read_records(file, form)
        except BadInputError as error:
            raise BadInputError(f"{_shown(args)}, {error}") from None


def _shown(args: argparse.Namespace) -> str:
    return "standard input" if args.file == "-" else str(args.file)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as file:
            yield file


def _count(name: str) -> int | None:
    """The number of texts in a file; None for a stream, which can be read only once."""
    if not Path(name).is_file():
        return None
    with Path(name).open("rb") as file:
        return sum(1 for line in file if line.strip())
