"""`embedq submit`: the texts of a file as tasks, however many there are."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, aclosing
from itertools import repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embedq.cli.exit_codes import OK, REFUSED, SOME_FAILED, USAGE
from embedq.cli.options import encoding_from_args, encoding_options, server_options, service_from_args, within
from embedq.cli.output import Output, standard_input
from embedq.cli.progress import Progress
from embedq.cli.tasks import TaskProgress
from embedq.concurrency import in_daemon, in_order
from embedq.errors import BadInputError, EmbedqClientError, RefusedError
from embedq.records import Record, format_from_name, read_records
from embedq.responses import Job
from embedq.service import EmbeddingService
from embedq.split import MAX_TEXTS, halve_refused, json_bytes, split
from embedq.vector_file import TEXTS, VECTORS, vector_folder

IN_FLIGHT = 8
"""Tasks waited for at once. Bounds memory and keeps the worker busy."""

Submitted = tuple[list[Record], Job]
Finished = tuple[list[Record], npt.NDArray[np.float32] | None, dict[int, dict[str, str]]]
"""Texts; their vectors, if they are wanted; errors of texts by their position."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = "Splits over the server's request limit by itself and prints the task ids, one per line."
    parser.add_argument("file", metavar="FILE", help="one text per line, or .jsonl with objects; - is stdin")
    parser.add_argument("--format", choices=["auto", "lines", "jsonl"], default="auto", help="auto: by the file's name")
    parser.add_argument(
        "--lane", choices=["online", "bulk"], default="bulk", help="bulk (default) lets others go first"
    )
    parser.add_argument("--wait", action="store_true", help="wait until all tasks end")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"wait, and write DIR/{VECTORS} and DIR/{TEXTS}")
    encoding_options(parser)
    server_options(parser, timeout_s=None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(within(args.timeout, _Submission(args, Output(args.json)).run()))


class _Submission:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace, output: Output) -> None:
        self._args = args
        self._output = output
        self._shown = "standard input" if args.file == "-" else args.file
        self._ids: list[str] = []
        self._pieces = split(self._records(), lambda record: json_bytes(record.text), max_items=MAX_TEXTS)
        # Many are waited for at once, but submitted one by one: a script that loops over the ids that are printed must
        # get the vectors in the order of the file.
        self._turn = asyncio.Lock()

    async def run(self) -> int:
        """The exit code."""
        try:
            code = await self._submit_all()
        except asyncio.CancelledError:
            self._note_how_to_continue()
            raise
        except (EmbedqClientError, BadInputError, OSError) as error:
            if not self._ids:
                raise
            code = self._output.failure(error)
            self._note_how_to_continue()
            return SOME_FAILED if code in {USAGE, REFUSED} else code
        if not self._ids:
            self._output.note(f"there is no text in {self._shown}: nothing was submitted")
        return code

    async def _submit_all(self) -> int:
        async with service_from_args(self._args, self._output) as service:
            if self._args.wait or self._args.out:
                return await self._finish_all(service)
            while piece := await self._next():  # none unprinted when a later one is refused
                await self._submit(service, piece)
        return OK

    async def _next(self) -> list[Record]:
        """The texts of the next task; [] at the end. The line that they lack may be long in coming."""
        return await in_daemon(lambda: next(self._pieces, []))

    async def _finish_all(self, service: EmbeddingService) -> int:
        out = self._args.out
        with ExitStack() as stack:
            writer = stack.enter_context(vector_folder(out)) if out else None
            display = stack.enter_context(Progress("embedding", json_lines=self._args.json))
            progress = TaskProgress(display, total=_count(self._args.file))

            async def finish(_: None) -> list[Finished]:
                async with self._turn:
                    piece = await self._next()
                    submitted = await self._submit(service, piece) if piece else []
                return [await self._finished(service, *each, progress) for each in submitted]

            async with aclosing(in_order(finish, repeat(None), limit=IN_FLIGHT)) as finished:
                async for parts in finished:
                    if not parts:
                        break
                    for records, vectors, errors in parts:
                        if writer and vectors is not None:
                            writer.append(records, vectors, errors)
        if out:
            self._output.note(f"wrote {out / VECTORS} and {TEXTS}", texts=progress.texts("total"))
        return progress.outcome

    async def _submit(self, service: EmbeddingService, piece: list[Record]) -> list[Submitted]:
        """Submits one task, or several where the server takes less at once; prints the id of a task at once."""

        async def send(part: list[Record]) -> Job:
            texts = [record.text for record in part]
            try:
                return await service.submit(texts, lane=self._args.lane, **encoding_from_args(self._args))
            except RefusedError as error:
                if error.input_index is None or error.input_index >= len(part):
                    raise
                # The server counts texts of one request; the reader knows lines of a file.
                line = part[error.input_index].line
                raise error.reworded(f"line {line}: {error.message}", error.param) from error

        submitted = []
        async with aclosing(halve_refused(send, piece)) as parts:
            async for part, task in parts:
                lines = {"first_line": part[0].line, "last_line": part[-1].line}
                self._ids.append(task.id)  # before it is printed: whoever reads may be gone
                self._output.result(task.id, {"id": task.id, "texts": len(part), **lines})
                submitted.append((part, task))
        return submitted

    async def _finished(
        self, service: EmbeddingService, part: list[Record], task: Job, progress: TaskProgress
    ) -> Finished:
        task = await service.wait(task.id, on_change=progress.changed)
        vectors = await service.result(task.id) if self._args.out else None
        errors = {} if task.succeeded else await service.item_errors(task.id)
        for index, error in sorted(errors.items()):
            line = part[index].line
            self._output.note(f"line {line} has no vector: {error['message']}", line=line, code=error["code"])
        return part, vectors, errors

    def _note_how_to_continue(self) -> None:
        """A second `submit` would do all again."""
        if not self._ids:
            return
        self._output.note(f"what was submitted goes on; wait for it with: embedq wait {' '.join(self._ids)}")
        if self._args.out:
            self._output.note("nothing was written; each task's vectors, in this order: embedq result ID -o NAME.npy")

    def _records(self) -> Iterator[Record]:
        name = self._args.file
        form = format_from_name(name) if self._args.format == "auto" else self._args.format
        # Not sys.stdin itself: Python dies at its exit where a thread still reads from that.
        with open(standard_input().fileno() if name == "-" else name, "rb", closefd=name != "-") as file:
            try:
                yield from read_records(file, form)
            except BadInputError as error:
                raise BadInputError(f"{self._shown}, {error}") from None


def _count(name: str) -> int | None:
    """The number of texts in a file; None for a stream, which can be read only once."""
    if not Path(name).is_file():
        return None
    with Path(name).open("rb") as file:
        return sum(1 for line in file if line.strip())
