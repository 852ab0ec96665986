"""What an operator does with the files of datasets."""

import sqlite3
from pathlib import Path

import pytest

from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.upkeep_command import main


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, with one empty dataset, `handbook`."""
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("EMBEDQ_DATASETS", str(tmp_path / "datasets"))
    file = DatasetFile(tmp_path / "datasets", "anonymous", "handbook")
    with file.locked():
        file.made()
    return tmp_path / "datasets"


def test_a_dataset_is_copied_checked_shrunk_and_renamed(
    datasets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = str(tmp_path / "copy.sqlite")
    owner = "--owner=anonymous"
    assert main(["backup", owner, "handbook", copy]) == 0
    assert sqlite3.connect(copy).execute("SELECT count(*) FROM documents").fetchone() == (0,)
    assert [main([what, owner, "handbook"]) for what in ("check", "vacuum")] == [0, 0]
    assert main(["rename", owner, "handbook", "manual"]) == 0
    assert capsys.readouterr().out.splitlines()[1::2] == ["handbook is whole", "handbook is manual now"]
    assert main(["backup", owner, "manual", copy]) == 1
    assert "exists; name a new file" in capsys.readouterr().err
    (file,) = datasets.glob("anonymous/manual.dataset/*.sqlite")
    file.write_bytes(b"no database at all" * 1000)
    assert main(["check", owner, "manual"]) == 1
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "--owner=anonymous", "nowhere"], "anonymous has no dataset nowhere"),
        (["rename", "--owner=anonymous", "nowhere", "b"], "anonymous has no dataset nowhere"),
        (["rename", "--owner=anonymous", "handbook", "a b"], "cannot be the name"),
        (["rename", "--owner=anonymous", "handbook", "ing_" + "0" * 32], "cannot be the name"),
        (["backup", "--owner=anonymous", "handbook", "/nowhere/copy"], "/nowhere/copy cannot be written: No such file"),
        (["check", "--owner=..", "handbook"], "no id of an owner"),
    ],
)
@pytest.mark.usefixtures("datasets")
def test_what_cannot_be_done_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("datasets")
def test_postgresql_has_its_own_tools(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("asyncpg")
    monkeypatch.setenv("EMBEDQ_DATASETS", "postgresql://127.0.0.1:1/none")
    assert main(["vacuum", "--owner=anonymous", "handbook"]) == 1
    assert "pg_dump" in capsys.readouterr().err
