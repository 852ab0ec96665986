"""`embedq doctor`: is everything there, and if not, what to do."""

import argparse
import asyncio
import dataclasses

from embedq import environment
from embedq.cli.exits import OK, SOME_FAILED, UsageError
from embedq.cli.options import server_options
from embedq.cli.output import Output
from embedq.diagnosis import Finding, examine
from embedq.transport import Transport


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    server_options(parser, timeout_s=30)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_doctor(args, Output(args.json)))


async def _doctor(args: argparse.Namespace, output: Output) -> int:
    url = args.url or environment.server_url()
    try:
        transport = Transport(url, api_key=environment.api_key())
    except ValueError as error:
        raise UsageError(str(error)) from None
    fine = True
    async with transport:
        async for finding in examine(transport):
            output.result(_line(finding), dataclasses.asdict(finding))
            fine = fine and finding.fine
    return OK if fine else SOME_FAILED


def _line(finding: Finding) -> str:
    mark = "ok     " if finding.fine else "WRONG  "
    advice = f"\n         -> {finding.advice}" if finding.advice else ""
    return f"{mark}{finding.name}: {finding.detail}{advice}"
