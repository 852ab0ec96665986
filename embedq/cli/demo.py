"""`embedq demo`: starts a local stack, ingests this project's own documentation, and searches it.

On a terminal the stack stays until Enter is pressed, so that its console can be looked at.
"""

import argparse
import asyncio
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

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
_DATASET = "documentation"
_COMMANDS_OF_THE_FAKE_ENCODER = "testing.md"
"""It would obey them."""
STOP_TIMEOUT_S = 60.0
_OF_THE_MODEL = re.compile(r"EMBEDQ_(MODEL|DEVICE|COMPUTE|PRECISION|THREADS|STREAMS|FAKE_\w+)")
"""Settings that the demo takes over. Any other may be of a real service, with its Redis, storage and databases."""
_READY = "ready "
_SHOWN_LOG_CHARS = 3000


def add(parser: argparse.ArgumentParser) -> None:
    """Sets what it runs; it has no options."""
    parser.set_defaults(run=run)


def run(_: argparse.Namespace, output: Output) -> int:
    """The exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="embedq-demo-") as folder:
        command = command_for("stack", "--port", "0", "--data", folder)
        output.note("starting Redis, a model worker, a documents worker and the API")
        with running_stack(command, Path(folder) / "stack.log") as url:
            code = asyncio.run(_show(url, output))
            output.note(f"the console shows it: {url}/console")
            if sys.stdin and sys.stdin.isatty() and sys.stdout.isatty():
                output.note("press Enter to stop")
                sys.stdin.readline()
            output.note("stopping")
    return code


def _interrupt(*_: object) -> NoReturn:
    # Python's own way would end this process and leave the stack running, which has a session of its own.
    raise KeyboardInterrupt


@contextmanager
def running_stack(command: Sequence[str], log_file: Path) -> Iterator[str]:
    """Runs a local stack as a child process for the block; yields its address.

    It works in the folder of its log and knows nothing of another service that the environment or a `.env` describes.

    Raises:
        UsageError: it does not come up. The message holds the end of its log.
    """
    own = {
        name: value
        for name, value in environment.with_python_path(CHECKOUT).items()
        if not name.startswith("EMBEDQ_") or _OF_THE_MODEL.fullmatch(name)
    }
    with (
        log_file.open("wb") as log,
        # A session of its own: Ctrl-C reaches this process, which stops the stack in order.
        subprocess.Popen(  # noqa: S603 - our own
            command, stdout=subprocess.PIPE, stderr=log, start_new_session=True, env=own, cwd=log_file.parent, text=True
        ) as process,
    ):
        try:
            ready = next((line for line in process.stdout or () if line.startswith(_READY)), None)
            if ready is None:
                end = log_file.read_text(errors="replace")[-_SHOWN_LOG_CHARS:]
                raise UsageError(f"the local stack did not come up:\n{end}")
            yield ready.removeprefix(_READY).strip()
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def _show(url: str, output: Output) -> int:
    async with EmbeddingService(url) as service, Ingestions(url) as server:
        info = service.get_model_info()
        model = f"{info['model_name']} on {info['device']}, {info['embedding_size']} dimensions"
        output.note(f"ready at {url}: {model}")
        files = local_files([CHECKOUT / "docs"], ["*.md"], [_COMMANDS_OF_THE_FAKE_ENCODER])
        body = {"source": {}, "sink": {"type": "dataset", "dataset": _DATASET}, "mode": "skip_unchanged"}
        code = await ingest(server, files, body, None, output)
        for question in QUESTIONS:
            print(f"\n{question}")
            print_chunks(await server.search_dataset(_DATASET, question, _ANSWERS), output)
    return code
