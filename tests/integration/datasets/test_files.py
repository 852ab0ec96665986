"""What is done with whole files of datasets: they are listed, renamed, deleted, copied, looked at and made smaller."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stack.testing import PATIENCE_S
from tasks.datasets.contents import DatasetGone
from tasks.datasets.loads import Verdict
from tasks.datasets.sqlite.dataset_file import DatasetFile, dataset_names, held_bytes, is_dataset_name
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


def test_an_owner_has_his_datasets_and_their_bytes(tmp_path: Path) -> None:
    files = [filled(tmp_path, "me", name) for name in ("docs", ".hidden", "..", "A")]
    filled(tmp_path, "other", "theirs")
    assert dataset_names(tmp_path, "me") == ["..", ".hidden", "A", "docs"]
    sizes = [path.stat().st_size for file in files if (path := file.path())]
    assert held_bytes(tmp_path, "me") == sum(sizes) > 0
    files[0].delete()
    assert dataset_names(tmp_path, "me") == ["..", ".hidden", "A"]
    assert dataset_names(tmp_path, "nobody") == []
    assert held_bytes(tmp_path, "nobody") == 0
    assert {path.parent.parent for path in tmp_path.rglob("*.sqlite")} == {tmp_path / "me", tmp_path / "other"}


@pytest.mark.parametrize(
    ("name", "good"), [("a.B-c_9", True), ("x" * 128, True), ("x" * 129, False), ("", False), ("a/b", False)]
)
def test_names(name: str, *, good: bool) -> None:
    assert is_dataset_name(name) is good


def test_a_dataset_is_renamed_with_all_that_is_in_it(tmp_path: Path) -> None:
    old, new = filled(tmp_path, "me", "old"), DatasetFile(tmp_path, "me", "new")
    store = SqliteStore(old)
    store.known(["a"])
    assert old.rename("new")
    assert known(new) == {"a", "b"}
    assert store.known(["a"]) == {}
    assert not old.rename("new")
    assert load(store, document("new"), by=stamp(2)) == [Verdict.LOADED], "one of the old name is another"
    store.close()
    assert not old.rename("new"), "there is one"
    assert (known(old), known(new)) == ({"new"}, {"a", "b"})
    assert new.delete()
    assert old.rename("new"), "of the one that was deleted nothing is in the way"
    assert known(new) == {"new"}


def test_loads_while_a_dataset_is_renamed_go_into_one_of_the_two(tmp_path: Path) -> None:
    filled(tmp_path, "me", "old")
    together = threading.Barrier(3)

    def loads(number: int) -> None:
        store = SqliteStore(DatasetFile(tmp_path, "me", "old"))
        together.wait(PATIENCE_S)
        for n in range(20):
            assert load(store, document(f"{number}-{n}"), by=stamp(2)) == [Verdict.LOADED]
        store.close()

    def renames(_: int) -> None:
        together.wait(PATIENCE_S)
        assert DatasetFile(tmp_path, "me", "old").rename("new")

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(what, n) for n, what in enumerate((loads, loads, renames))]:
            each.result(PATIENCE_S)
    found = []
    for name in ("old", "new"):
        file = DatasetFile(tmp_path, "me", name)
        store = SqliteStore(file)
        found += list(store.known([f"{number}-{n}" for number in range(2) for n in range(20)]))
        store.close()
        assert file.path() is None or check(file) == []
    assert sorted(found) == sorted(f"{number}-{n}" for number in range(2) for n in range(20))


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
