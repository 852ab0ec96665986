"""`embedq demo`: the whole path, with the fake encoder and with the real model."""

import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from embedq.cli.demo import QUESTIONS
from tests.processes import Process, wait_until

# Of a service that has nothing to do with the demo, and that it must not touch.
SOMEBODY_ELSES = {
    "api_keys": f"me:{'0' * 64}",
    "redis_url": "redis://127.0.0.1:1/0",
    "host": "203.0.113.1",
    "port": "80",
}
TIMEOUT_S = 300


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the demo takes for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def demo(folder: Path, **settings: str) -> Process:
    process = Process("demo", [sys.executable, "-P", "-m", "embedq", "demo"], folder / "work", **settings)
    process.stdout_file = process.folder / "out.txt"
    return process


def hits(out: str, question: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in out.split(question)[1].splitlines()[1:4]]


def test_the_demo_runs_beside_another_configuration_and_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    process = demo(tmp_path, compute="fake", **SOMEBODY_ELSES)
    lines = [f"EMBEDQ_{name.upper()}={value}" for name, value in SOMEBODY_ELSES.items()]
    (process.folder / ".env").write_text("\n".join(lines))
    process.launch()
    assert process.wait(TIMEOUT_S) == 0, process.log()
    out = process.stdout_file.read_text()
    for question in QUESTIONS:
        assert len(hits(out, question)) == 3
        assert all(".md" in hit for hit in hits(out, question))
    assert re.search(r"the console shows it: http://127\.0\.0\.1:\d+/console\nembedq: stopping\n$", process.log())
    assert list(temporary.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.model
@pytest.mark.usefixtures("temporary")
def test_its_questions_find_their_answers(tmp_path: Path) -> None:
    process = demo(tmp_path)
    process.launch()
    assert process.wait(TIMEOUT_S) == 0, process.log()
    out = process.stdout_file.read_text()
    answers = (
        "docs/ingestion.md > Ingestion of documents > Chunks",
        "docs/client.md > The client: Python and command line > Exit codes",
    )
    for question, answer in zip(QUESTIONS, answers, strict=True):
        # Each change of the documents may put a neighbour before it.
        assert any(hit.startswith(answer) for hit in hits(out, question)), out


def test_a_stack_that_does_not_come_up_says_why(tmp_path: Path, temporary: Path) -> None:
    process = demo(tmp_path, model="/no/such/model")
    process.launch()
    assert process.wait(TIMEOUT_S) == 2
    assert "the local stack did not come up:\n" in process.log()
    assert "/no/such/model" in process.log().partition("did not come up")[2]
    assert list(temporary.iterdir()) == []


def test_a_signal_stops_its_stack_too(tmp_path: Path, temporary: Path) -> None:
    process = demo(tmp_path, compute="fake", fake_load_s="600")
    process.launch()

    def worker_and_all() -> list[psutil.Process]:
        children = psutil.Process(process.pid).children(recursive=True)
        return children if any(_is_worker(child) for child in children) else []

    try:
        children = process.wait_while_running(worker_and_all, "its worker was started")
        process.send(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 130, process.log()
    finally:
        process.stop()
    wait_until(lambda: not any(child.is_running() for child in children), message="the end of the stack")
    assert list(temporary.iterdir()) == []


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "tasks.worker" in process.cmdline()
    except psutil.Error:  # it has ended since it was listed
        return False
