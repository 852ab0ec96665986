"""`embedq submit`: the texts of a file as tasks, however many there are."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, aclosing
from pathlib import Path
from threading import Thread
from typing import TypeVar

from embedq.cli.asking import asks
from embedq.cli.exit_codes import OK, REFUSED, SOME_FAILED, USAGE
from embedq.cli.options import encoding_from_args, encoding_options, server_options
from embedq.cli.output import Output
from embedq.cli.progress import Progress
from embedq.cli.tasks import TaskProgress
from embedq.errors import BadInputError, EmbedqClientError, RefusedError
from embedq.many import halve_refused, in_order, json_bytes, split
from embedq.service import EmbeddingService
from embedq.text_files import TEXTS, VECTORS, Floats, Record, read_records, vector_folder
from embedq.transport import Job

IN_FLIGHT = 8
"""Tasks waited for at once. Bounds memory and keeps the worker busy."""

R = TypeVar("R")
Submitted = tuple[list[Record], Job]
Finished = tuple[list[Record], Floats | None, Mapping[int, Mapping[str, str]]]
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
    parser.set_defaults(run=asks(EmbeddingService, _submit, whole=True))


async def _submit(service: EmbeddingService, args: argparse.Namespace, output: Output) -> int:
    submission = _Submission(service, args, output)
    try:
        code = await (submission.finish_all() if args.wait or args.out else submission.submit_all())
    except asyncio.CancelledError:
        submission.note_how_to_go_on()
        raise
    except (EmbedqClientError, BadInputError, OSError) as error:
        if not submission.ids:
            raise
        code = output.failure(error)
        submission.note_how_to_go_on()
        return SOME_FAILED if code in {USAGE, REFUSED} else code
    if not submission.ids:
        output.note(f"there is no text in {submission.shown}: nothing was submitted")
    return code


class _Submission:
    """One run of the command.

    Attributes:
        ids: of the tasks that were submitted.
        shown: the name of the file.
    """

    def __init__(self, service: EmbeddingService, args: argparse.Namespace, output: Output) -> None:
        self.ids: list[str] = []
        self.shown = "standard input" if args.file == "-" else args.file
        self._service, self._args, self._output = service, args, output

    async def submit_all(self) -> int:
        """The exit code."""
        async for _ in self._submitted():
            pass
        return OK

    async def finish_all(self) -> int:
        """Waits for all, and writes what is wanted; the exit code."""
        out = self._args.out
        with ExitStack() as stack:
            add_rows = stack.enter_context(vector_folder(out)) if out else None
            display = stack.enter_context(Progress("embedding", json_lines=self._args.json))
            progress = TaskProgress(display, total=_count(self._args.file))

            async def finish(submitted: Submitted) -> Finished:
                return await self._finished(*submitted, progress)

            async with aclosing(in_order(finish, self._submitted(), limit=IN_FLIGHT)) as finished:
                async for records, vectors, errors in finished:
                    if add_rows and vectors is not None:
                        add_rows(records, vectors, errors)
        if out:
            self._output.note(f"wrote {out / VECTORS} and {TEXTS}", texts=progress.texts("total"))
        return progress.outcome

    def note_how_to_go_on(self) -> None:
        """A second `submit` would do all again."""
        if self.ids:
            self._output.note(f"what was submitted goes on; wait for it with: embedq wait {' '.join(self.ids)}")
        if self.ids and self._args.out:
            self._output.note("nothing was written; each task's vectors, in this order: embedq result ID -o NAME.npy")

    async def _submitted(self) -> AsyncIterator[Submitted]:
        """Submits one task after the other, smaller ones where the server takes less; prints each id at once."""
        pieces = split(self._records(), lambda record: json_bytes(record.text))
        # The line that a task lacks may be long in coming.
        while piece := await _in_daemon(lambda: next(pieces, [])):
            async with aclosing(halve_refused(self._send, piece)) as parts:
                async for part, task in parts:
                    lines = {"first_line": part[0].line, "last_line": part[-1].line}
                    self.ids.append(task.id)  # before it is printed: whoever reads may be gone
                    self._output.result(task.id, {"id": task.id, "texts": len(part), **lines})
                    yield part, task

    async def _send(self, part: list[Record]) -> Job:
        texts = [record.text for record in part]
        try:
            return await self._service.submit(texts, lane=self._args.lane, **encoding_from_args(self._args))
        except RefusedError as error:
            if error.input_index is not None and error.input_index < len(part):
                # The server counts texts of one request; the reader knows lines of a file.
                error.message = f"line {part[error.input_index].line}: {error.message}"
            raise

    async def _finished(self, part: list[Record], task: Job, progress: TaskProgress) -> Finished:
        task = await self._service.wait(task.id, on_change=progress.changed)
        vectors = await self._service.result(task.id) if self._args.out else None
        errors = {} if task.succeeded else await self._service.item_errors(task.id)
        for index, error in sorted(errors.items()):
            line = part[index].line
            self._output.note(f"line {line} has no vector: {error['message']}", line=line, code=error["code"])
        return part, vectors, errors

    def _records(self) -> Iterator[Record]:
        name, form = self._args.file, self._args.format
        jsonl = form == "jsonl" or (form == "auto" and name.lower().endswith((".jsonl", ".ndjson")))
        # Not sys.stdin itself: Python dies at its exit where a thread still reads from that.
        with open(sys.stdin.fileno() if name == "-" else name, "rb", closefd=name != "-") as file:
            try:
                yield from read_records(file, jsonl=jsonl)
            except BadInputError as error:
                raise BadInputError(f"{self.shown}, {error}") from None


def _in_daemon(call: Callable[[], R]) -> asyncio.Future[R]:
    """What a call returns that may block for ever. Nobody waits for its thread: neither who cancels, nor the exit."""
    future: Future[R] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(future)


def _count(name: str) -> int | None:
    """The number of texts in a file; None for a stream, which can be read only once."""
    if not Path(name).is_file():
        return None
    with Path(name).open("rb") as file:
        return sum(1 for line in file if line.strip())
