"""`embedq jobs`: tasks, batches and ingestions with how far they are, and why one is not done yet."""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

from embedq.cli.exit_codes import OK
from embedq.cli.options import count, ingestions_from_args, server_options
from embedq.cli.output import Output, printable

SHOWN = 20
_NAMES = ("name", "filename", "title")
"""Keys of metadata that name a job for people."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.description = "The newest jobs first, each with the sentence of the server that says why it is not done yet."
    parser.add_argument("--kind", metavar="K", help="some of task, batch, ingestion, separated by commas")
    parser.add_argument("--status", metavar="S", help="in these states only, separated by commas")
    parser.add_argument("--limit", type=count, default=SHOWN, metavar="N", help=f"so many (default: {SHOWN})")
    server_options(parser, timeout_s=60)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_jobs(args, Output(args.json)))


async def _jobs(args: argparse.Namespace, output: Output) -> int:
    filters = {name: value for name in ("kind", "status") if (value := getattr(args, name))}
    async with ingestions_from_args(args, output) as server:
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
    why = job["waiting"] or faults[0]
    return ", ".join(parts) + (f": {why['message']}" if why else "")
