"""A local stack as a child process, for as long as a block runs."""

import asyncio
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from embedq import environment
from embedq.cli.exits import UsageError
from embedq.cli.roles import CHECKOUT

START_TIMEOUT_S = 300.0
"""Loading a model from a cold disk on a small machine takes a minute or two."""
STOP_TIMEOUT_S = 60.0
_OF_ANOTHER_SERVICE = {"EMBEDQ_API_KEYS", "EMBEDQ_REDIS_URL", "EMBEDQ_HOST", "EMBEDQ_PORT"}
_READY = b"ready "
_SHOWN_LOG_CHARS = 3000


@asynccontextmanager
async def running(command: Sequence[str], log_file: Path) -> AsyncIterator[str]:
    """The address of the stack that `command` starts; it is stopped at the end of the block.

    It works in the folder of its log and knows nothing of another service that the environment or a `.env` describes.

    Raises:
        UsageError: it does not come up. The message holds the end of its log.
    """
    with log_file.open("wb") as log:
        # A session of its own: Ctrl-C reaches this process, which stops the stack in order.
        process = await create_subprocess_exec(
            *command, stdout=PIPE, stderr=log, start_new_session=True, env=_environment(), cwd=log_file.parent
        )
    try:
        yield await _ready_url(process, log_file)
    finally:
        await _stop(process)


def _environment() -> dict[str, str]:
    inherited = environment.with_python_path(CHECKOUT)
    return {name: value for name, value in inherited.items() if name not in _OF_ANOTHER_SERVICE}


async def _ready_url(process: Process, log_file: Path) -> str:
    assert process.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            async for line in process.stdout:
                if line.startswith(_READY):
                    return line.removeprefix(_READY).decode().strip()
    except TimeoutError:
        pass
    raise UsageError(f"the local stack did not come up:\n{_tail(log_file)}")


def _tail(log_file: Path) -> str:
    return log_file.read_text(errors="replace")[-_SHOWN_LOG_CHARS:]


async def _stop(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
