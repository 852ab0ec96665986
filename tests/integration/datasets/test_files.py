"""What is done with whole files of datasets: they are listed, renamed, deleted, copied, looked at and made smaller."""

from pathlib import Path

import pytest

from tasks.datasets.contents import DatasetGone
from tasks.datasets.sqlite.dataset_file import DatasetFile, held_bytes
from tasks.datasets.sqlite.load import SqliteStore
from tasks.datasets.sqlite.upkeep import backup, check, vacuum
from tests.integration.datasets.loads import document, finish, load, stamp


def filled(folder: Path, owner: str, name: str, text: str = "one") -> DatasetFile:
    file = DatasetFile(folder, owner, name)
    store = SqliteStore(file)
    load(store, document("a", text), document("b", text))
    store.close()
    return file


def known(file: DatasetFile) -> set[str]:
    store = SqliteStore(file)
    try:
        return set(store.known(["a", "b", "new"]))
    finally:
        store.close()


def test_nothing_else_lies_beside_a_dataset(tmp_path: Path) -> None:
    folder = DatasetFile(tmp_path, "me", "docs").folder
    folder.mkdir(parents=True)
    for name in ("0123.new", "0123.new-journal"):  # somebody was killed while he made one
        (folder / name).write_bytes(b"half")
    path = filled(tmp_path, "me", "docs").path()
    assert path is not None
    assert {each.name for each in folder.iterdir()} == {"lock", path.name, f"{path.name}-journal"}
    assert DatasetFile(tmp_path, "me", "docs").delete()
    assert [each.name for each in folder.iterdir()] == ["lock"]


def test_a_copy_is_a_dataset(tmp_path: Path) -> None:
    file = filled(tmp_path, "me", "docs")
    target = tmp_path / "other" / "docs.dataset" / "copy.sqlite"
    target.parent.mkdir(parents=True)
    backup(file, target)
    assert known(DatasetFile(tmp_path, "other", "docs")) == {"a", "b"}
    with pytest.raises(FileExistsError):
        backup(file, target)
    with pytest.raises(DatasetGone):
        backup(DatasetFile(tmp_path, "me", "none"), tmp_path / "x")


def test_damage_is_found_and_the_room_of_what_was_deleted_is_given_back(tmp_path: Path) -> None:
    file = filled(tmp_path, "me", "docs", "text " * 20_000)
    store = SqliteStore(file)
    assert check(file) == []
    finish(store, stamp(2))
    store.close()
    before = held_bytes(tmp_path, "me")
    vacuum(file)
    assert held_bytes(tmp_path, "me") < before / 2
    load(SqliteStore(file), document("a", "text " * 20_000), by=stamp(3))
    path = file.path()
    assert path is not None
    data = bytearray(path.read_bytes())
    data[-16_384:-8_192] = bytes(8_192)
    path.write_bytes(bytes(data))
    assert check(file) != []
