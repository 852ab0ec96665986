"""The course of a command that was chosen: what its errors mean to people and in exit codes."""

import argparse
import asyncio
import os
import sys

from embedq.cli import exits
from embedq.cli.output import Output
from embedq.collection import BadCollectionError
from embedq.errors import EmbedqClientError
from embedq.localfiles import BadSourceError
from embedq.records import BadRecordError


def run(args: argparse.Namespace) -> int:
    """Runs the command and returns its exit code."""
    output = Output(json_lines=getattr(args, "json", False))
    try:
        code: int = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except EmbedqClientError as error:
        output.error(error)
        return exits.code_of(error)
    except (exits.UsageError, BadRecordError, BadCollectionError, BadSourceError) as error:
        output.problem(str(error), "usage" if isinstance(error, exits.UsageError) else "input")
        return exits.USAGE
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except OSError as error:
        said = error.strerror or str(error)
        output.problem(f"{error.filename}: {said}" if error.filename else said, "system")
        return exits.USAGE
    except (KeyboardInterrupt, asyncio.CancelledError):
        output.note("interrupted; submitted tasks go on")
        return exits.INTERRUPTED
    return code
