"""`embedq debug`, `storage`: for operators, on a machine with the settings of the service."""

import argparse
from typing import NoReturn

from embedq.cli.serve import become

_COMMANDS = {
    "debug": ("tasks.ledger.debug", "task ID | queue NAME | owner ID [--data DIR]"),
    "storage": ("tasks.storage", "unknown [--delete] | accept [--data DIR]"),
}
"""Name -> the module that it becomes, and what stands behind the name."""


def add(parser: argparse.ArgumentParser) -> None:
    """Takes whatever stands behind the command: the module reads it."""
    module, arguments = _COMMANDS[parser.prog.split()[-1]]
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar=arguments)
    parser.set_defaults(run=run, module=module)


def run(args: argparse.Namespace) -> NoReturn:
    """Becomes the module of the server."""
    become(args.module, *args.arguments)
