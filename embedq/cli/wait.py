"""`embedq wait`: until tasks end."""

import argparse
import asyncio
from contextlib import aclosing

from embedq.cli.exits import OK, SOME_FAILED
from embedq.cli.limit import within
from embedq.cli.options import server_options, service_of
from embedq.cli.output import Output
from embedq.cli.tally import Tally
from embedq.inflight import in_order
from embedq.progress import showing
from embedq.service import EmbeddingService
from embedq.task import Task

WATCHED = 8
"""Tasks watched at once."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("ids", nargs="+", metavar="ID")
    server_options(parser, timeout_s=None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(within(args.timeout, _wait(args, Output(args.json))))


def describe(task: Task) -> str:
    """A task that has ended, in one line."""
    failed = f", {task.counts.failed} failed" if task.counts.failed else ""
    return f"{task.id} {task.status} {task.counts.completed}/{task.counts.total}{failed}"


async def _wait(args: argparse.Namespace, output: Output) -> int:
    async with service_of(args, output) as service:
        known = await _known(service, args.ids)
        total, start = sum(task.counts.total for task in known), sum(task.counts.done for task in known)
        with showing("waiting", total, start=start, json_lines=args.json) as progress:
            tally = Tally(progress, known)

            async def ended(task_id: str) -> Task:
                return await service.wait(task_id, on_change=tally.changed)

            async with aclosing(in_order(ended, args.ids, limit=WATCHED)) as tasks:
                async for task in tasks:
                    output.result(describe(task), task.raw)
    return OK if tally.all_succeeded else SOME_FAILED


async def _known(service: EmbeddingService, ids: list[str]) -> list[Task]:
    async with aclosing(in_order(service.status, ids, limit=WATCHED)) as tasks:
        return [task async for task in tasks]
