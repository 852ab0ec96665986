"""`embedq up`, `api`, `worker`, `documents-worker`, `debug`, `storage`: become a module of the server."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from embedq import environment
from embedq.cli.exit_codes import UsageError
from embedq.cli.options import count
from embedq.cli.output import Output

CHECKOUT = Path(__file__).resolve().parents[2]
ROLES = {"api": "api", "worker": "tasks.worker", "documents-worker": "tasks.ingestion"}
"""Command -> the module that it becomes."""
_UPKEEP = {
    "debug": ("tasks.ledger.debug", "task ID | queue NAME | owner ID [--data DIR]"),
    "storage": ("tasks.storage", "unknown [--delete] | accept [--data DIR]"),
}
"""For operators: command -> the module that it becomes and that reads what stands behind the name."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command that the parser is for."""
    name = parser.prog.split()[-1]
    if name in ROLES:
        parser.set_defaults(run=run_module, module=ROLES[name], arguments=())
        return
    if name in _UPKEEP:
        module, arguments = _UPKEEP[name]
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar=arguments)
        parser.set_defaults(run=run_module, module=module)
        return
    parser.add_argument(
        "--port", type=port, metavar="P", help="of the API (default: EMBEDQ_PORT, else 8000); 0: a free one"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="where Redis keeps its data (default: .embedq)")
    parser.add_argument("--workers", type=count, metavar="N", help="workers of each model (default: 1)")
    parser.add_argument(
        "--model", action="append", metavar="M", help="to be served; may be repeated (default: EMBEDQ_MODEL)"
    )
    parser.set_defaults(run=run_stack)


def run_stack(args: argparse.Namespace, _: Output) -> NoReturn:
    """Becomes the local stack."""
    given = [("--port", args.port), ("--data", args.data), ("--workers", args.workers)]
    given += [("--model", model) for model in args.model or ()]
    become("stack", *(part for name, value in given if value is not None for part in (name, str(value))))


def run_module(args: argparse.Namespace, _: Output) -> NoReturn:
    """Becomes a role, or what an operator looks with."""
    become(args.module, *args.arguments)


def command_for(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the server.

    Raises:
        UsageError: only the client is installed here.
    """
    file = CHECKOUT.joinpath(*module.split("."))
    if not (file.with_suffix(".py").is_file() or (file / "__main__.py").is_file()):
        raise UsageError(
            "the server runs from its checkout or its image, and this is the client alone: "
            "clone the repository and use its .venv/bin/embedq, or run the container image"
        )
    # -P: a folder named `api` or `tasks` in the working directory must not be taken for ours.
    return [sys.executable, "-P", "-m", module, *arguments]


def become(module: str, *arguments: str) -> NoReturn:
    """Replaces this process by a module of the server, so that signals and the exit code are the module's own."""
    command = command_for(module, *arguments)
    os.execve(command[0], command, environment.with_python_path(CHECKOUT))  # noqa: S606 - no shell is wanted


def port(text: str) -> int:
    """An argument that must be a port number."""
    number = int(text)
    if not 0 <= number <= 65535:  # noqa: PLR2004 - the range of ports
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return number
