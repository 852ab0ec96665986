"""`embedq cancel`: ends tasks."""

import argparse
import asyncio

from embedq.cli.exits import OK
from embedq.cli.options import server_options, service_of
from embedq.cli.output import Output


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("ids", nargs="+", metavar="ID")
    server_options(parser, timeout_s=60)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_cancel(args, Output(args.json)))


async def _cancel(args: argparse.Namespace, output: Output) -> int:
    async with service_of(args, output) as service:
        for task_id in args.ids:
            task = await service.cancel(task_id)
            output.result(f"{task.id} {task.status}", task.raw)
    return OK
