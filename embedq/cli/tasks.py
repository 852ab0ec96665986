"""`embedq wait`, `result`, `cancel`: tasks that were submitted before."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np

from embedq.atomic_file import atomic_file
from embedq.cli.exit_codes import OK, SOME_FAILED, UsageError
from embedq.cli.options import server_options, service_from_args, within
from embedq.cli.output import NO_STDOUT, Output, digits
from embedq.cli.progress import TaskProgress, showing
from embedq.concurrency import in_order
from embedq.responses import Vectors
from embedq.service import EmbeddingService
from embedq.task import Task, TextError

WATCHED = 8
"""Tasks watched at once."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command that the parser is for."""
    command = parser.prog.split()[-1]
    if command == "result":
        parser.add_argument("id", metavar="ID")
        file_help = "a .npy array or .jsonl lines (default: JSON lines on stdout)"
        parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=file_help)
        server_options(parser, timeout_s=600)
        parser.set_defaults(run=run_result)
        return
    parser.add_argument("ids", nargs="+", metavar="ID")
    server_options(parser, timeout_s=None if command == "wait" else 60)
    parser.set_defaults(run=run_wait if command == "wait" else run_cancel)


def run_wait(args: argparse.Namespace) -> int:
    """The exit code of `wait`."""
    return asyncio.run(within(args.timeout, _wait(args, Output(args.json))))


def run_result(args: argparse.Namespace) -> int:
    """The exit code of `result`."""
    if args.output and args.output.suffix not in {".npy", ".jsonl"}:
        raise UsageError(f"{args.output}: the name must end with .npy or .jsonl")
    return asyncio.run(_result(args, Output(args.json)))


def run_cancel(args: argparse.Namespace) -> int:
    """The exit code of `cancel`."""
    return asyncio.run(_cancel(args, Output(args.json)))


async def _wait(args: argparse.Namespace, output: Output) -> int:
    async with service_from_args(args, output) as service:
        tasks = await _statuses(service, args.ids)
        total, start = sum(task.counts.total for task in tasks), sum(task.counts.done for task in tasks)
        with showing("waiting", total, start=start, json_lines=args.json) as display:
            _note_first_that_waits(tasks, output)
            progress = TaskProgress(display, tasks)

            async def wait(task_id: str) -> Task:
                return await service.wait(task_id, on_change=progress.changed)

            async with aclosing(in_order(wait, args.ids, limit=WATCHED)) as ended:
                async for task in ended:
                    output.result(_description(task), task.raw)
    return OK if progress.all_succeeded else SOME_FAILED


def _note_first_that_waits(tasks: Sequence[Task], output: Output) -> None:
    for task in tasks:
        why = task.raw.get("waiting")
        if why and why["code"] != "working":
            output.note(f"{task.id}: {why['message']}", id=task.id, code=why["code"])
            return


async def _statuses(service: EmbeddingService, ids: list[str]) -> list[Task]:
    async with aclosing(in_order(service.status, ids, limit=WATCHED)) as tasks:
        return [task async for task in tasks]


def _description(task: Task) -> str:
    failed = f", {task.counts.failed} failed" if task.counts.failed else ""
    return f"{task.id} {task.status} {task.counts.completed}/{task.counts.total}{failed}"


async def _cancel(args: argparse.Namespace, output: Output) -> int:
    async with service_from_args(args, output) as service:
        for task_id in args.ids:
            task = await service.cancel(task_id)
            output.result(f"{task.id} {task.status}", task.raw)
    return OK


async def _result(args: argparse.Namespace, output: Output) -> int:
    async with service_from_args(args, output) as service:
        task = await service.wait(args.id, args.timeout)
        vectors = await service.result(args.id)
        errors = {} if task.succeeded else await service.item_errors(args.id)
    _write(args.output, vectors, errors)
    for index, error in sorted(errors.items()):
        output.note(f"text {index} has no vector: {error.message}", index=index, code=error.code)
    return SOME_FAILED if errors else OK


def _write(path: Path | None, vectors: Vectors, errors: Mapping[int, TextError]) -> None:
    if path is None:
        if sys.stdout is None:
            raise UsageError(NO_STDOUT)
        for line in result_lines(vectors, errors):
            sys.stdout.write(json.dumps(line) + "\n")
    else:
        with atomic_file(path) as file:
            if path.suffix == ".npy":
                np.save(file, vectors)
            else:
                file.writelines(json.dumps(line).encode() + b"\n" for line in result_lines(vectors, errors))


def result_lines(vectors: Vectors, errors: Mapping[int, TextError]) -> Iterator[dict[str, Any]]:
    """One object per text, in order: its embedding, or its error."""
    for index, vector in enumerate(vectors):
        if index in errors:
            yield {"index": index, "error": {"code": errors[index].code, "message": errors[index].message}}
        else:
            yield {"index": index, "embedding": digits(vector.tolist())}
