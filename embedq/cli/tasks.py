"""`embedq wait`, `result`, `cancel`, `jobs`: what was submitted before."""

import argparse
import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embedq.atomic_file import atomic_file
from embedq.cli.arguments import count, utf8
from embedq.cli.exit_codes import OK, UsageError, outcome
from embedq.cli.options import of_each, server_options, service_from_args, transport_from_args, within
from embedq.cli.output import Output, digits, printable, standard_output
from embedq.cli.progress import Progress
from embedq.concurrency import in_order
from embedq.ingestions import Ingestions
from embedq.responses import Job

WATCHED = 8
"""Tasks watched at once."""
SHOWN_JOBS = 20
_NAMES = ("name", "filename", "title")
"""Keys of metadata that name a job for people."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command that the parser is for."""
    command = parser.prog.split()[-1]
    work = {"wait": _wait, "result": _result, "cancel": _cancel, "jobs": _jobs}[command]
    if command == "jobs":
        parser.description = "The newest first, each with the sentence of the server that says why it is not done yet."
        parser.add_argument(
            "--kind", type=utf8, metavar="K", help="some of task, batch, ingestion, separated by commas"
        )
        parser.add_argument("--status", type=utf8, metavar="S", help="in these states only, separated by commas")
        parser.add_argument("--limit", type=count, default=SHOWN_JOBS, metavar="N", help="so many (default: 20)")
    elif command == "result":
        parser.add_argument("id", metavar="ID")
        file_help = "a .npy array or .jsonl lines (default: JSON lines on stdout)"
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=file_help)
    else:
        parser.add_argument("ids", nargs="+", metavar="ID")
    server_options(parser, timeout_s={"wait": None, "result": 600}.get(command, 60))
    parser.set_defaults(run=run, work=work)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    code: int = asyncio.run(args.work(args, Output(args.json)))
    return code


async def _wait(args: argparse.Namespace, output: Output) -> int:
    return await within(args.timeout, _waited(args, output))


async def _waited(args: argparse.Namespace, output: Output) -> int:
    async with service_from_args(args, output) as service:
        tasks, code = await of_each(service.status, args.ids, output, limit=WATCHED)
        if not tasks:
            return code
        with Progress("waiting", json_lines=args.json) as display:
            progress = TaskProgress(display, tasks)
            for why in [task["waiting"] for task in tasks if task.get("waiting")][:1]:
                if why["code"] != "working":
                    output.note(why["message"], code=why["code"])

            async def wait(task_id: str) -> Job:
                return await service.wait(task_id, on_change=progress.changed)

            async with aclosing(in_order(wait, [task.id for task in tasks], limit=WATCHED)) as ended:
                async for task in ended:
                    output.result(describe(task), task)
    return progress.outcome or code


class TaskProgress:
    """The progress of many tasks as one; `changed` is for `EmbeddingService.wait`.

    Args:
        total: of their texts; None: of those that are known.
    """

    def __init__(self, progress: Progress, tasks: Iterable[Job] = (), total: int | None = None) -> None:
        self._progress = progress
        self._tasks: dict[str, Job] = {}
        self._total = total
        for task in tasks:
            self.changed(task)

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


async def _cancel(args: argparse.Namespace, output: Output) -> int:
    async with service_from_args(args, output) as service:

        async def cancel(task_id: str) -> None:
            task = await service.cancel(task_id)
            output.result(f"{task.id} {task.status}", task)

        return (await of_each(cancel, args.ids, output))[1]


async def _result(args: argparse.Namespace, output: Output) -> int:
    if args.output and args.output.suffix not in {".npy", ".jsonl"}:
        raise UsageError(f"{args.output}: the name must end with .npy or .jsonl")
    async with service_from_args(args, output) as service:
        task = await service.wait(args.id, args.timeout)
        vectors = await service.result(args.id)
        errors = {} if task.succeeded else await service.item_errors(args.id)
    _write(args.output, vectors, errors)
    for index, error in sorted(errors.items()):
        output.note(f"text {index} has no vector: {error['message']}", index=index, code=error["code"])
    return outcome(len(vectors) - len(errors), len(errors))


def _write(path: Path | None, vectors: npt.NDArray[np.float32], errors: Mapping[int, Mapping[str, str]]) -> None:
    if path is None:
        standard_output().writelines(json.dumps(line) + "\n" for line in result_lines(vectors, errors))
        return
    with atomic_file(path) as file:
        if path.suffix == ".npy":
            np.save(file, vectors)
        else:
            file.writelines(json.dumps(line).encode() + b"\n" for line in result_lines(vectors, errors))


def result_lines(vectors: npt.NDArray[np.float32], errors: Mapping[int, Mapping[str, str]]) -> Iterator[dict[str, Any]]:
    """One object per text, in order: its embedding, or its error."""
    for index, vector in enumerate(vectors):
        if index in errors:
            yield {"index": index, "error": errors[index]}
        else:
            yield {"index": index, "embedding": digits(vector.tolist())}


async def _jobs(args: argparse.Namespace, output: Output) -> int:
    filters = {name: value for name in ("kind", "status") if (value := getattr(args, name))}
    async with transport_from_args(Ingestions, args, output) as server:
        async for job in server.jobs(args.limit, **filters):
            output.result(describe(job), job)
    return OK


def describe(job: Mapping[str, Any]) -> str:
    """A job in one line."""
    counts, metadata = job["counts"], job.get("metadata") or {}
    parts = [f"{job['id']} {job['status']} {counts['completed'] + counts['failed']:,}/{counts['total']:,}"]
    parts += [f"{counts['failed']:,} failed"] if counts["failed"] else []
    parts += [printable(name) for key in _NAMES if (name := metadata.get(key))][:1]
    faults = (job.get("errors") or {}).get("data") or [job.get("error")]
    why = job.get("waiting") or faults[0]
    return ", ".join(parts) + (f": {why['message']}" if why else "")
