"""`embedq demo`: the whole path once, on text that is at hand: this project's own documentation."""

import argparse
import asyncio
import re
import signal
import tempfile
from pathlib import Path

import numpy as np

from embedq.cli.exits import UsageError
from embedq.cli.ingest import sink_of
from embedq.cli.ingesting import Plan, ingest
from embedq.cli.local_stack import running
from embedq.cli.output import Output
from embedq.cli.roles import CHECKOUT, command_for
from embedq.cli.search import print_found
from embedq.dataset import Dataset, parts_in
from embedq.ingestions import Ingestions
from embedq.service import EmbeddingService

QUESTIONS = (
    "What becomes of a text when its worker is killed?",
    "Which exit code means that the server cannot be reached?",
)
_ANSWERS = 3
_COMMAND = re.compile(r"!![a-z]+!!")
_BODY = {"mode": "skip_unchanged", "chunking": {"type": "auto"}}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds what it does; it has no options."""
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_demo(Output(json_lines=False)))


def documentation(root: Path, folder: Path) -> list[Path]:
    """Copies the project's documents, without what misleads.

    That is what quotes one of the questions, which answers none, and commands of the fake encoder, which would obey.

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


def _stop_in_order() -> None:
    # A signal that just ends this process leaves the stack behind, which has a session of its own.
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker: this is called from a coroutine
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


async def _demo(output: Output) -> int:
    _stop_in_order()
    with tempfile.TemporaryDirectory(prefix="embedq-demo-") as folder:
        command = command_for("stack", "--port", "0", "--data", folder)
        sources = documentation(CHECKOUT, Path(folder) / "sources")
        output.note("starting Redis, a model worker, a documents worker and the API")
        async with running(command, Path(folder) / "stack.log") as url, EmbeddingService(url) as service:
            info = await service.get_model_info()
            model = f"{info['model_name']} on {info['device']}, {info['embedding_size']} dimensions"
            output.note(f"ready at {url}: {model}")
            out = Path(folder) / "vectors"
            code = await _ingest(url, sources, out, output)
            for question in QUESTIONS:
                query = np.asarray(await service.get_embedding(question), dtype=np.float32)
                print(f"\n{question}")
                print_found(Dataset(parts_in(out)).nearest(query, _ANSWERS), output)
            output.note("stopping")
    return code


async def _ingest(url: str, sources: list[Path], out: Path, output: Output) -> int:
    async with Ingestions(url) as server:
        plan = Plan([str(source) for source in sources], {}, _BODY, sink_of(str(out), server.url), stays=False)
        return await ingest(server, plan, output)
