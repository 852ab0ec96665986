"""`embedq demo`: starts a local stack, ingests this project's own documentation, and searches it.

On a terminal the stack stays until Enter is pressed, so that its console can be looked at.
"""

import argparse
import asyncio
import re
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TextIO

from embedq import environment
from embedq.cli.dataset import print_chunks
from embedq.cli.exit_codes import UsageError
from embedq.cli.ingest import ingest
from embedq.cli.output import Output
from embedq.cli.serve import CHECKOUT, command_for
from embedq.ingestions import Ingestions
from embedq.local_files import local_files
from embedq.service import EmbeddingService

QUESTIONS = (
    "How is a long document cut into chunks?",
    "Which exit code means that the server cannot be reached?",
)
_ANSWERS = 3
_COMMAND = re.compile(r"!![a-z]+!!")
_DATASET = "documentation"
START_TIMEOUT_S = 300.0
"""Loading a model from a cold disk on a small machine takes a minute or two."""
STOP_TIMEOUT_S = 60.0
_OF_ANOTHER_SERVICE = {"EMBEDQ_API_KEYS", "EMBEDQ_REDIS_URL", "EMBEDQ_HOST", "EMBEDQ_PORT"}
_READY = b"ready "
_SHOWN_LOG_CHARS = 3000


def add(parser: argparse.ArgumentParser) -> None:
    """Sets what it runs; it has no options."""
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_demo(Output(json_lines=False)))


def documentation(root: Path, folder: Path) -> list[Path]:
    """Copies the project's documents, without paragraphs that mislead the search.

    Those are quotations of the questions, which answer none, and commands of the fake encoder, which would obey them.

    Returns:
        what to ingest: the documents of the first level, and the folder of the others.

    Raises:
        UsageError: there are none.
    """
    files = [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("**/*.md"))]
    if not files:
        raise UsageError(f"no documentation in {root}")
    for file in files:
        copy = folder / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        blocks = file.read_text(encoding="utf-8").split("\n\n")
        copy.write_text("\n\n".join(block for block in blocks if not _misleads(block)), encoding="utf-8")
    return sorted(folder.iterdir())


def _misleads(text: str) -> bool:
    flat = " ".join(text.split())
    return any(question in flat for question in QUESTIONS) or bool(_COMMAND.search(flat))


def _stop_by_cancelling() -> None:
    # A signal that just ends this process would leave the stack running, which has a session of its own.
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker: this is called from a coroutine
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


@asynccontextmanager
async def running_stack(command: Sequence[str], log_file: Path) -> AsyncIterator[str]:
    """Runs a local stack as a child process for the block; yields its address.

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
        await _stop_stack(process)


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
    raise UsageError(f"the local stack did not come up:\n{_end_of(log_file)}")


def _end_of(log_file: Path) -> str:
    return log_file.read_text(errors="replace")[-_SHOWN_LOG_CHARS:]


async def _stop_stack(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _demo(output: Output) -> int:
    _stop_by_cancelling()
    with tempfile.TemporaryDirectory(prefix="embedq-demo-") as folder:
        command = command_for("stack", "--port", "0", "--data", folder)
        sources = documentation(CHECKOUT, Path(folder) / "sources")
        output.note("starting Redis, a model worker, a documents worker and the API")
        async with (
            running_stack(command, Path(folder) / "stack.log") as url,
            EmbeddingService(url) as service,
            Ingestions(url) as server,
        ):
            info = await service.get_model_info()
            model = f"{info['model_name']} on {info['device']}, {info['embedding_size']} dimensions"
            output.note(f"ready at {url}: {model}")
            body = {"source": {}, "sink": {"type": "dataset", "dataset": _DATASET}, "mode": "skip_unchanged"}
            code = await ingest(server, local_files(sources), body, None, output)
            for question in QUESTIONS:
                print(f"\n{question}")
                print_chunks(await server.search_dataset(_DATASET, question, _ANSWERS), output)
            output.note(f"the console shows it: {url}/console")
            if sys.stdin and sys.stdin.isatty() and sys.stdout.isatty():
                output.note("press Enter to stop")
                await line_from(sys.stdin)
            output.note("stopping")
    return code


async def line_from(terminal: TextIO) -> None:
    """Returns when a line can be read from a terminal, or its end. A signal still ends the wait, unlike a thread's."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(terminal, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(terminal)
    terminal.readline()
