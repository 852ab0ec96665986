"""A local stack as a child process; here a small program in its place."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from embedq.cli.demo import QUESTIONS, documentation, running_stack
from embedq.cli.exit_codes import UsageError

COMES_UP = """
import pathlib, signal, sys, time
def stop(*_):
    pathlib.Path("stopped").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("starting", flush=True)
print("ready http://127.0.0.1:1", flush=True)
while True:
    time.sleep(60)
"""
GIVES_UP = "import sys; print('the model cannot load', file=sys.stderr); sys.exit(78)"


def command(program: str, folder: Path) -> list[str]:
    return [sys.executable, "-c", f"import os; os.chdir({str(folder)!r})\n{program}"]


@pytest.mark.parametrize("failure", [None, ZeroDivisionError, KeyboardInterrupt])
def test_it_runs_as_long_as_the_block(failure: type[BaseException] | None, tmp_path: Path) -> None:
    with (
        pytest.raises(failure) if failure else nullcontext(),
        running_stack(command(COMES_UP, tmp_path), tmp_path / "log") as url,
    ):
        assert url == "http://127.0.0.1:1"
        assert not (tmp_path / "stopped").exists()
        if failure:
            raise failure
    assert (tmp_path / "stopped").exists()


def test_one_that_gives_up_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="did not come up:\nthe model cannot load"),
        running_stack(command(GIVES_UP, tmp_path), tmp_path / "log"),
    ):
        pytest.fail("it came up")
    assert os.listdir(tmp_path) == ["log"]  # noqa: PTH208 - names are enough


def test_the_documentation_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs" / "deeper").mkdir(parents=True)
    for name in ("README.md", "docs/http.md", "docs/deeper/more.md", "docs/image.png"):
        (tmp_path / name).write_text(f"# {name}\n\n{'word ' * 20}")
    copies = tmp_path / "copies"
    assert [source.name for source in documentation(tmp_path, copies)] == ["README.md", "docs"]
    names = sorted(str(file.relative_to(copies)) for file in copies.rglob("*") if file.is_file())
    assert names == ["README.md", "docs/deeper/more.md", "docs/http.md"]


def test_a_passage_that_quotes_a_question_is_no_answer(tmp_path: Path) -> None:
    quoted = QUESTIONS[0].replace(" ", "\n", 1)
    (tmp_path / "README.md").write_text(f"# Ask\n\n{quoted} and so on\n\n# Answer\n\nThis.")
    (copy,) = documentation(tmp_path, tmp_path / "copies")
    assert copy.read_text() == "# Ask\n\n# Answer\n\nThis."


def test_it_gets_nothing_that_belongs_to_another_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEYS", "REDIS_URL", "HOST", "PORT", "COMPUTE"):
        monkeypatch.setenv(f"EMBEDQ_{name}", "x")
    program = "import os; print('ready', os.getcwd(), *sorted(n for n in os.environ if n.startswith('EMBEDQ_')))"
    with running_stack([sys.executable, "-c", program], tmp_path / "log") as printed:
        assert printed == f"{tmp_path} EMBEDQ_COMPUTE"


def test_without_documentation_there_is_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no documentation"):
        documentation(tmp_path, tmp_path / "copies")


def test_it_knows_nothing_of_a_real_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "EMBEDQ_STORAGE_URL",
        "EMBEDQ_DATASETS",
        "EMBEDQ_REDIS_SENTINELS",
        "EMBEDQ_MODEL",
        "EMBEDQ_FAKE_DIMENSION",
    ):
        monkeypatch.setenv(name, "x")
    told = "import os; print('ready', *sorted(name for name in os.environ if name.startswith('EMBEDQ_')))"
    with running_stack(command(told, tmp_path), tmp_path / "log") as seen:
        assert seen == "EMBEDQ_FAKE_DIMENSION EMBEDQ_MODEL"
