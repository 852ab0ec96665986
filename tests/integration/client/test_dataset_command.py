"""What an operator does with the files of datasets."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.upkeep_command import main

Upkeep = Callable[..., tuple[int, str]]


@pytest.fixture
def upkeep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Upkeep:
    """The exit code and what is printed, where there is one empty dataset, `handbook`."""
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("EMBEDQ_DATASETS", str(tmp_path / "datasets"))
    file = DatasetFile(tmp_path / "datasets", "anonymous", "handbook")
    with file.locked():
        file.made()

    def run(what: str, *names: str, owner: str = "anonymous") -> tuple[int, str]:
        code = main([what, f"--owner={owner}", *names])
        return code, "".join(capsys.readouterr())

    return run


def test_a_dataset_is_copied_checked_shrunk_and_renamed(upkeep: Upkeep, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.sqlite")
    assert upkeep("backup", "handbook", copy)[0] == upkeep("vacuum", "handbook")[0] == 0
    assert sqlite3.connect(copy).execute("SELECT count(*) FROM documents").fetchone() == (0,)
    assert upkeep("check", "handbook") == (0, "handbook is whole\n")
    assert upkeep("rename", "handbook", "manual") == (0, "handbook is manual now\n")
    [file] = tmp_path.glob("datasets/anonymous/manual.dataset/*.sqlite")
    file.write_bytes(b"no database at all" * 1000)
    for (code, said), expected in (
        (upkeep("backup", "manual", copy), "exists; name a new file"),
        (upkeep("check", "manual"), "damaged"),
        (upkeep("check", "nowhere"), "anonymous has no dataset nowhere"),
        (upkeep("rename", "nowhere", "b"), "anonymous has no dataset nowhere"),
        (upkeep("rename", "manual", "a b"), "cannot be the name"),
        (upkeep("rename", "manual", "ing_" + "0" * 32), "cannot be the name"),
        (upkeep("backup", "manual", "/nowhere/copy"), "/nowhere/copy cannot be written: No such file"),
        (upkeep("check", "manual", owner=".."), "no id of an owner"),
    ):
        assert code == 1
        assert expected in said


def test_postgresql_has_its_own_tools(upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("asyncpg")
    monkeypatch.setenv("EMBEDQ_DATASETS", "postgresql://127.0.0.1:1/none")
    code, said = upkeep("vacuum", "handbook")
    assert (code, "pg_dump" in said) == (1, True)
