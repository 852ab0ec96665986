"""`embedq wait`, `result`, `cancel`, `jobs`: what was submitted before."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np

from embedq.cli.asking import asks, of_each
from embedq.cli.exit_codes import UsageError, outcome
from embedq.cli.options import count, server_options, utf8
from embedq.cli.output import Output, digits, printable
from embedq.cli.progress import Progress
from embedq.ingestions import Ingestions
from embedq.many import each, in_order
from embedq.service import EmbeddingService
from embedq.text_files import Floats, atomic_file
from embedq.transport import Job

WATCHED = 8
"""Tasks watched at once."""
SHOWN_JOBS = 20
_NAMES = ("name", "filename", "title")
"""Keys of metadata that name a job for people."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command that the parser is for."""
    command, timeout_s = parser.prog.split()[-1], 60.0
    if command == "jobs":
        parser.description = "The newest first, each with the sentence of the server that says why it is not done yet."
        kinds, states = "some of task, batch, ingestion, separated by commas", "in these states only, likewise"
        parser.add_argument("--kind", type=utf8, metavar="K", help=kinds)
        parser.add_argument("--status", type=utf8, metavar="S", help=states)
        parser.add_argument("--limit", type=count, default=SHOWN_JOBS, metavar="N", help="so many (default: 20)")
        parser.set_defaults(run=asks(Ingestions, _jobs))
    elif command == "result":
        timeout_s = 600
        parser.add_argument("id", metavar="ID")
        file_help = "a .npy array or .jsonl lines (default: JSON lines on stdout)"
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=file_help)
        parser.set_defaults(run=asks(EmbeddingService, _result, whole=True))
    else:
        parser.add_argument("ids", nargs="+", metavar="ID")
        parser.set_defaults(
            run=asks(EmbeddingService, _wait, whole=True) if command == "wait" else asks(EmbeddingService, _cancel)
        )
    server_options(parser, timeout_s=None if command == "wait" else timeout_s)


async def _wait(service: EmbeddingService, args: argparse.Namespace, output: Output) -> int:
    tasks, code = await of_each(service.status, args.ids, output, limit=WATCHED)
    if not tasks:
        return code
    for why in [task["waiting"] for task in tasks if task.get("waiting")][:1]:
        if why["code"] != "working":
            output.note(why["message"], code=why["code"])
    with Progress("waiting", json_lines=args.json) as display:
        progress = TaskProgress(display)
        for task in tasks:
            progress.changed(task)

        async def wait(task: Job) -> Job:
            return await service.wait(task.id, on_change=progress.changed)

        async with aclosing(in_order(wait, each(tasks), limit=WATCHED)) as ended:
            async for task in ended:
                output.result(describe(task), task)
    return progress.outcome or code


class TaskProgress:
    """The progress of many tasks as one; `changed` is for `EmbeddingService.wait`.

    Args:
        total: of their texts; None: of those that are known.
    """

    def __init__(self, progress: Progress, total: int | None = None) -> None:
        self._progress = progress
        self._tasks: dict[str, Job] = {}
        self._total = total

    def texts(self, what: str) -> int:
        """How many have come to this: `total`, `completed`, `failed`."""
        return sum(task["counts"][what] for task in self._tasks.values())

    @property
    def outcome(self) -> int:
        """The exit code, once all have ended. A text that was cancelled has failed."""
        return outcome(self.texts("completed"), self.texts("total") - self.texts("completed"))

    def changed(self, task: Job) -> None:
        """Takes a task's latest state."""
        self._tasks[task.id] = task
        failed = self.texts("failed")
        self._progress.update(self.texts("completed") + failed, failed, total=self._total or self.texts("total"))


async def _cancel(service: EmbeddingService, args: argparse.Namespace, output: Output) -> int:
    async def cancel(task_id: str) -> None:
        task = await service.cancel(task_id)
        output.result(f"{task.id} {task.status}", task)

    return (await of_each(cancel, args.ids, output))[1]


async def _result(service: EmbeddingService, args: argparse.Namespace, output: Output) -> int:
    path: Path | None = args.output
    if path and path.suffix not in {".npy", ".jsonl"}:
        raise UsageError(f"{path}: the name must end with .npy or .jsonl")
    task = await service.wait(args.id)
    vectors = await service.result(args.id)
    errors = {} if task.succeeded else await service.item_errors(args.id)
    if path is None:
        sys.stdout.writelines(_result_lines(vectors, errors))
    else:
        with atomic_file(path) as file:
            if path.suffix == ".npy":
                np.save(file, vectors)
            else:
                file.writelines(line.encode() for line in _result_lines(vectors, errors))
    for index, error in sorted(errors.items()):
        output.note(f"text {index} has no vector: {error['message']}", index=index, code=error["code"])
    return outcome(len(vectors) - len(errors), len(errors))


def _result_lines(vectors: Floats, errors: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """One line per text, in order: its embedding, or its error."""
    for index, vector in enumerate(vectors):
        found = {"error": errors[index]} if index in errors else {"embedding": digits(vector.tolist())}
        yield json.dumps({"index": index, **found}) + "\n"


async def _jobs(server: Ingestions, args: argparse.Namespace, output: Output) -> None:
    filters = {name: value for name in ("kind", "status") if (value := getattr(args, name))}
    async for job in server.jobs(args.limit, **filters):
        output.result(describe(job), job)


def describe(job: Mapping[str, Any]) -> str:
    """A job in one line."""
    counts, metadata = job["counts"], job.get("metadata") or {}
    parts = [f"{job['id']} {job['status']} {counts['completed'] + counts['failed']:,}/{counts['total']:,}"]
    parts += [f"{counts['failed']:,} failed"] if counts["failed"] else []
    parts += [printable(name) for key in _NAMES if (name := metadata.get(key))][:1]
    faults = (job.get("errors") or {}).get("data") or [job.get("error")]
    why = job.get("waiting") or faults[0]
    return ", ".join(parts) + (f": {why['message']}" if why else "")
