"""How a command asks a server: its client, its time, and several names of which the server may refuse some."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from embedq.cli.exit_codes import OK, SOME_FAILED, UsageError, exit_code
from embedq.cli.output import Output
from embedq.errors import RefusedError, WaitTimeoutError
from embedq.ingestions import Ingestions
from embedq.many import run_all
from embedq.service import EmbeddingService
from embedq.transport import Transport

C = TypeVar("C", Ingestions, EmbeddingService, Transport)
R = TypeVar("R")

Run = Callable[[argparse.Namespace, Output], int]
"""What a command runs; the exit code."""


def asks(
    kind: type[C], work: Callable[[C, argparse.Namespace, Output], Awaitable[int | None]], *, whole: bool = False
) -> Run:
    """Runs `work` with a client of that kind. None is done, as `OK`.

    `whole`: `--timeout` is for all of it, because what was submitted goes on without it; else it is for each call.
    """

    def run(args: argparse.Namespace, output: Output) -> int:
        async def asked() -> int:
            async with client_from_args(kind, args, output) as server:
                return await work(server, args, output) or OK

        return asyncio.run(within(args.timeout if whole else None, asked()))

    return run


def client_from_args(kind: type[C], args: argparse.Namespace, output: Output) -> C:
    """A client for a command with `server_options`.

    Raises:
        UsageError: the address or the key cannot be used.
    """
    options: dict[str, Any] = {} if args.timeout is None else {"timeout_s": args.timeout}
    if issubclass(kind, EmbeddingService):
        options["model"] = getattr(args, "model", None)
    with checked_address():
        return kind(args.url, on_retry=output.retry, **options)


@contextmanager
def checked_address() -> Iterator[None]:
    """For making a client: a refused address or key is wrong usage."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from None


async def within(timeout_s: float | None, work: Awaitable[int]) -> int:
    """What `work` returns.

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
            output.error(error, name)
            refused.append(error)
            return []

    done = [one for answer in await run_all(attempt, names, limit=limit) for one in answer]
    if not refused:
        return done, OK
    return done, SOME_FAILED if done else exit_code(refused[-1])
