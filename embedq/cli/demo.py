"""`embedq demo`: the whole path once, on text that is at hand: this project's own documentation."""

import argparse
import asyncio
import signal
import tempfile
from contextlib import aclosing
from pathlib import Path

import numpy as np

from embedq.answers import Vectors
from embedq.cli.exits import OK, UsageError
from embedq.cli.local_stack import running
from embedq.cli.options import Commands
from embedq.cli.output import Output
from embedq.cli.roles import CHECKOUT, command_for
from embedq.cli.search import shown
from embedq.cli.tally import Tally
from embedq.inflight import in_order
from embedq.passages import Passage, split
from embedq.pieces import cut, json_bytes
from embedq.progress import showing
from embedq.search import nearest
from embedq.service import EmbeddingService

QUESTIONS = (
    "What becomes of a text when its worker is killed?",
    "Which exit code means that the server cannot be reached?",
)
_TASK_TEXTS = 64
"""Texts of one task here: few, so that the progress bar moves."""


def add(commands: Commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("demo", help="start a local stack, embed this project's documentation, search it")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """The exit code."""
    return asyncio.run(_demo(Output(json_lines=False)))


def documentation(root: Path) -> list[Passage]:
    """The passages of the project's documents, without those that quote one of the questions: they answer none.

    Raises:
        UsageError: there are none.
    """
    files = [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("**/*.md"))]
    found = (p for file in files for p in split(str(file.relative_to(root)), file.read_text(encoding="utf-8")))
    passages = [passage for passage in found if not _quotes_a_question(passage.text)]
    if not passages:
        raise UsageError(f"no documentation in {root}")
    return passages


def _quotes_a_question(text: str) -> bool:
    flat = " ".join(text.split())
    return any(question in flat for question in QUESTIONS)


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
        passages = documentation(CHECKOUT)
        output.note("starting Redis, a model worker and the API")
        async with running(command, Path(folder) / "stack.log") as url, EmbeddingService(url) as service:
            info = await service.get_model_info()
            model = f"{info['model_name']} on {info['device']}, {info['embedding_size']} dimensions"
            output.note(f"ready at {url}: {model}")
            vectors = await _embed(service, passages)
            for question in QUESTIONS:
                await _ask(service, question, passages, vectors, output)
            output.note("stopping")
    return OK


async def _embed(service: EmbeddingService, passages: list[Passage]) -> Vectors:
    with showing(f"embedding {len(passages)} passages", len(passages), json_lines=False) as progress:
        tally = Tally(progress)

        async def embed(piece: list[Passage]) -> Vectors:
            task = await service.submit([passage.text for passage in piece], lane="bulk")
            await service.wait(task.id, on_change=tally.changed)
            return await service.result(task.id)

        pieces = cut(passages, lambda passage: json_bytes(passage.text), max_items=_TASK_TEXTS)
        async with aclosing(in_order(embed, pieces, limit=len(passages))) as results:
            return np.concatenate([vectors async for vectors in results])


async def _ask(
    service: EmbeddingService, question: str, passages: list[Passage], vectors: Vectors, output: Output
) -> None:
    query = np.asarray(await service.get_embedding(question), dtype=np.float32)
    print(f"\n{question}")
    for hit in nearest(vectors, query, 3):
        found = passages[hit.row]
        fields = {"question": question, "score": hit.score, "source": found.source, "text": found.text}
        output.result(f"  {hit.score:.3f}  {found.source}  {shown(found.text)}", fields)
