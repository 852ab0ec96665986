"""The `embedq` command."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from embedq.cli import cancel, demo, doctor, embed, exits, ingest, result, roles, search, submit, wait
from embedq.cli.output import Output
from embedq.collection import BadCollectionError
from embedq.errors import EmbedqClientError
from embedq.localfiles import BadSourceError
from embedq.records import BadRecordError

_COMMANDS = (roles, embed, submit, wait, result, cancel, ingest, search, doctor, demo)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (`embedq.cli.exits`)."""
    args = parser().parse_args(argv)
    output = Output(json_lines=getattr(args, "json", False))
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except EmbedqClientError as error:
        output.error(error)
        return exits.code_of(error)
    except (exits.UsageError, BadRecordError, BadCollectionError, BadSourceError) as error:
        output.problem(str(error))
        return exits.USAGE
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except OSError as error:
        output.problem(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return exits.USAGE
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.note("interrupted; submitted tasks go on")
        return exits.INTERRUPTED
    return code


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="embedq",
        description="Text embeddings off the web tier: start the service, or use one that runs.",
        epilog=exits.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return root
