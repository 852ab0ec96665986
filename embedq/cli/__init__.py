"""The `embedq` command.

A command's module is loaded when the command is chosen. So the help needs neither asyncio, httpx nor numpy, and Ctrl-C
while they are being loaded prints no traceback.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from embedq.cli import exit_codes
from embedq.cli.options import SHARED, shared_options

_COMMANDS = (
    ("up", "serve", "start everything on this machine: Redis, workers, API"),
    ("api", "serve", "run the web tier in the foreground, configured by the environment"),
    ("worker", "serve", "run a model worker in the foreground, configured by the environment"),
    ("documents-worker", "serve", "run a documents worker (files, batches, ingestions) in the foreground, likewise"),
    ("embed", "embed", "print the vectors of a few texts"),
    ("submit", "submit", "submit the texts of a file, and wait for them if wanted"),
    ("wait", "tasks", "wait until tasks end"),
    ("result", "tasks", "fetch the vectors of a task; waits for it if it has not ended"),
    ("cancel", "tasks", "end tasks; what was finished stays readable"),
    ("jobs", "tasks", "list tasks, batches and ingestions, and why one is not done yet"),
    ("ingest", "ingest", "parse, cut, embed and load documents; run it again and only what changed costs anything"),
    ("search", "dataset", "print the chunks of a dataset that are nearest to a text"),
    ("dataset", "dataset", "list and delete datasets on the server; back up, check, vacuum, rename their files there"),
    ("keys", "keys", "make, limit, rotate, revoke and purge API keys of a server"),
    ("debug", "serve", "show a task, a queue or an owner as Redis holds them (needs the service's settings)"),
    ("storage", "serve", "list or remove what no record names; accept another storage (needs the service's settings)"),
    ("doctor", "doctor", "check a running server and say what to do"),
    ("demo", "demo", "start a local stack, ingest this project's documentation, search it"),
    ("completion", "about", "print what makes bash, zsh or fish complete commands and options"),
    ("help", "about", "print the help of a command"),
    ("version", "about", "print the version"),
)
"""Name, module of this package, what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (`embedq.cli.exit_codes`)."""
    if sys.stderr is None:  # closed: what is said must not go into a file that is opened next
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        print("embedq: standard output is closed", file=sys.stderr)
        return exit_codes.USAGE
    for stream in (sys.stdout, sys.stderr):  # any text is printable in any encoding
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    try:
        root = parser()
        args = root.parse_args(argv)
        if args.run is None:
            root.print_help()
            return exit_codes.OK
        if refused := [name for name in SHARED if hasattr(args, name) and name not in args.takes]:
            root.error(f"this command has no --{refused[0]}")
        for name, value in (("url", None), ("json", False), ("timeout", args.default_timeout_s)):
            setattr(args, name, getattr(args, name, value))
        code: int = import_module("embedq.cli.output").run_command(args)
    except KeyboardInterrupt:
        print("embedq: interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    return code


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="embedq",
        description="Text embeddings off the web tier: start the service, or use one that runs.",
        epilog=exit_codes.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("-V", "--version", action=_Version, nargs=0, help="print the version and leave")
    shared_options(root)
    root.set_defaults(run=None, takes=(), default_timeout_s=None)
    commands = root.add_subparsers(metavar="COMMAND", parser_class=Command)
    for name, module, text in _COMMANDS:
        commands.add_parser(name, help=text, module=module)
    return root


class Command(argparse.ArgumentParser):
    """The parser of a command, which gets its options from the command's module when it is chosen."""

    def __init__(self, *, module: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._module = module

    def load(self) -> None:
        """Adds the options, once."""
        module, self._module = self._module, ""
        if module:
            import_module(f"embedq.cli.{module}").add(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Adds the options first."""
        self.load()
        return super().parse_known_args(args, namespace)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print_version()
        parser.exit()


def print_version() -> None:
    """Prints the version of this package."""
    metadata = import_module("importlib.metadata")  # slow to load
    print(f"embedq {metadata.version('embedq')}")
