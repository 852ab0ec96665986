"""Options that several commands share, and what is made from them."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, TypeVar

from embedq.cli.arguments import count, shared_options
from embedq.cli.exit_codes import OK, SOME_FAILED, UsageError, exit_code
from embedq.cli.output import Output
from embedq.concurrency import in_order
from embedq.errors import RefusedError, WaitTimeoutError
from embedq.service import EmbeddingService, EncodingOptions
from embedq.transport import Transport

T = TypeVar("T", bound=Transport)
R = TypeVar("R")


def server_options(parser: argparse.ArgumentParser, *, timeout_s: float | None) -> None:
    """`--url`, `--timeout`, `--json`. A `timeout_s` of None means that the command waits for ever by default."""
    default = "never" if timeout_s is None else f"{timeout_s:g}"
    shared_options(parser, f"give up after so many seconds (default: {default})")
    parser.set_defaults(default_timeout_s=timeout_s)


def encoding_options(parser: argparse.ArgumentParser, *, truncating: bool = True) -> None:
    """`--model` and what changes a vector. `truncating`: whether texts can be too long at all."""
    parser.add_argument("--model", metavar="NAME", help="name under which the server serves it (default: its own)")
    parser.add_argument("--dimensions", type=count, metavar="N", help="cut vectors to N numbers (Matryoshka models)")
    parser.add_argument("--prompt-name", metavar="NAME", help="one of the model's prompts, put before each text")
    parser.add_argument("--no-normalize", action="store_true", help="leave vectors at their own length")
    if truncating:
        parser.add_argument("--no-truncate", action="store_true", help="let texts fail that are too long for the model")


def encoding_from_args(args: argparse.Namespace) -> EncodingOptions:
    """The values of `encoding_options`; options that were not given are absent."""
    options = EncodingOptions()
    if args.dimensions is not None:
        options["dimensions"] = args.dimensions
    if args.prompt_name is not None:
        options["prompt_name"] = args.prompt_name
    if args.no_normalize:
        options["normalize"] = False
    if getattr(args, "no_truncate", False):
        options["truncate"] = False
    return options


def service_from_args(args: argparse.Namespace, output: Output) -> EmbeddingService:
    """The client of embeddings and tasks for a command with `server_options`.

    Raises:
        UsageError: the address or the key cannot be used.
    """
    with checked_address():
        return EmbeddingService(
            args.url, model=getattr(args, "model", None), on_retry=output.retry, **_timeout_from_args(args)
        )


def transport_from_args(kind: type[T], args: argparse.Namespace, output: Output) -> T:
    """A client of that kind for a command with `server_options`.

    Raises:
        UsageError: the address or the key cannot be used.
    """
    with checked_address():
        return kind(args.url, on_retry=output.retry, **_timeout_from_args(args))


@contextmanager
def checked_address() -> Iterator[None]:
    """For making a client: a refused address or key is wrong usage."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


def _timeout_from_args(args: argparse.Namespace) -> dict[str, Any]:
    return {} if args.timeout is None else {"timeout_s": args.timeout}


async def within(timeout_s: float | None, work: Awaitable[int]) -> int:
    """What `work` returns within the `--timeout` of a whole command.

    Raises:
        WaitTimeoutError: it takes longer than `timeout_s` seconds; None: there is no limit.
    """
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        message = f"the {timeout_s:g} s of --timeout are over; what was submitted goes on (embedq jobs)"
        raise WaitTimeoutError(message, code="timeout") from None


async def of_each(
    work: Callable[[str], Coroutine[Any, Any, R]], names: Sequence[str], output: Output, *, limit: int = 1
) -> tuple[list[R], int]:
    """What `work` returns for each name, and the exit code. A name that the server refuses is told, and left out."""
    refused: list[RefusedError] = []

    async def attempt(name: str) -> list[R]:
        try:
            return [await work(name)]
        except RefusedError as error:
            output.error(error.reworded(f"{name}: {error.message}", error.param))
            refused.append(error)
            return []

    async with aclosing(in_order(attempt, names, limit=limit)) as answers:
        done = [one async for answer in answers for one in answer]
    if not refused:
        return done, OK
    return done, SOME_FAILED if done else exit_code(refused[-1])
