"""A storage and a Redis that do not belong together: nothing is deleted until somebody says that it may."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from api.async_storage import AsyncStorage
from tasks.documents.cleanup import Cleanup, sweep, sweep_batches, sweep_ingestions
from tasks.documents.context import StepContext
from tasks.documents.sinks.parquet.dataset_cleanup import sweep_datasets
from tasks.documents.sinks.parquet.parquet_sink import ParquetSink
from tasks.ledger import AsyncLedger, Ledger, operations
from tasks.records.datasets import present
from tasks.records.files import FileRecord, Purpose, new_file_id, put_file, stored_name
from tasks.records.storage_identity import OBJECT, adopt, id_of, is_ours, redis_id
from tasks.storage.storage import NotStored, Storage, Stored
from tests.integration.documents.sinks.loads import document, load
from worker_config.settings import Settings

DAYS_AGO_S = 2 * 86_400
HINT = "nothing is deleted from the storage"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)


def old(storage: Storage, root: Path, *names: str) -> list[str]:
    """Objects that were written two days ago."""
    for name in names:
        storage.write(name, b"precious")
        path = root / "storage" / name
        os.utime(path, (path.stat().st_mtime - DAYS_AGO_S,) * 2)
    return list(names)


def sweeping(storage: Storage, ledger: Ledger, **settings: str) -> Cleanup:
    """A sweep at the start of a documents worker."""
    step = Cleanup()
    step(StepContext(ledger, storage, Settings(**settings), send_bell=lambda _: None, stop=lambda: False))  # type: ignore[arg-type]
    return step


def left(storage: Storage) -> list[str]:
    folders = ("files", "batches", "ingestions", "datasets")
    return sorted(found.name for folder in folders for found in storage.stored(folder))


def uploaded(storage: Storage, ledger: Ledger, root: Path) -> list[str]:
    """A file with a record, and what batches and ingestions keep."""
    file_id = new_file_id()
    (stored,) = old(storage, root, stored_name(file_id))
    ledger.run(put_file(FileRecord(file_id, "alice", "a.txt", Purpose.USER_DATA, 8, 1, 4_000_000_000_000, stored)))
    return sorted([stored, *old(storage, root, "batches/batch_x/index", "ingestions/ing_x/listed.json")])


@pytest.mark.parametrize("lost", ["everything", "to another"])
def test_a_redis_that_does_not_know_the_storage_deletes_nothing(
    lost: str, storage: Storage, ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_ours(storage, ledger)
    names = uploaded(storage, ledger, tmp_path)
    ledger.client.flushall()
    ledger.run(operations.check_schema())
    if lost == "to another":
        assert is_ours(Storage.open(str(tmp_path / "its own")), ledger)

    step = sweeping(storage, ledger)
    assert left(storage) == names
    assert str(id_of(storage)) in caplog.text
    step._due = 0
    step(StepContext(ledger, storage, Settings(), send_bell=lambda _: None, stop=lambda: False))
    assert caplog.text.count(HINT) == 1


def test_it_may_be_adopted_once(
    storage: Storage, ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_ours(storage, ledger)
    lost = str(id_of(storage))
    names = uploaded(storage, ledger, tmp_path)
    ledger.client.flushall()

    sweeping(storage, ledger, adopt_storage="0" * 32)
    assert left(storage) == names

    sweeping(storage, ledger, adopt_storage=lost)
    assert left(storage) == []
    assert is_ours(storage, ledger)

    names = old(storage, tmp_path, "batches/batch_y/index")
    ledger.client.flushall()
    caplog.clear()
    sweeping(storage, ledger, adopt_storage=lost)  # somebody left the setting where it was
    assert left(storage) == names
    assert HINT in caplog.text


def test_two_workers_adopt_at_the_same_time(storage: Storage, ledger: Ledger) -> None:
    assert is_ours(storage, ledger)
    lost = str(id_of(storage))
    ledger.run(redis_id("f" * 32, replace=True))
    assert adopt(storage, ledger, lost)
    storage.write(OBJECT, lost.encode())  # the other one had read it before

    assert adopt(storage, ledger, lost)


def test_the_first_start_a_restart_and_an_emptied_storage(
    storage: Storage, ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweeping(storage, ledger)  # the first of all
    old(storage, tmp_path, "batches/batch_x/index")
    sweeping(storage, ledger)
    assert left(storage) == []

    fresh = Storage.open(str(tmp_path / "fresh"))
    sweeping(fresh, ledger)
    assert id_of(fresh) == id_of(storage)
    assert HINT not in caplog.text


OF_THE_FIRST_VERSION = [
    "batches/batch_x/index",
    "datasets/0123456789abcdef/handbook/catalog-00000001.0123456789abcdef.json",
    "datasets/0123456789abcdef/handbook/part-aa.parquet",
    "files/file-x",
    "ingestions/ing_x/listed.json",
]


@pytest.mark.parametrize("first", ["the documents worker", "an upload"])
async def test_a_storage_that_is_older_than_ids_is_nobodys_until_it_is_adopted(
    *, first: str, redis_url: str, storage: Storage, ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first start after an upgrade, with an empty Redis."""
    old(storage, tmp_path, *OF_THE_FIRST_VERSION)
    if first == "an upload":
        web = AsyncLedger.connect(redis_url)
        await AsyncStorage(str(tmp_path / "storage"), web).open_to_write()
        await web.close()
        assert caplog.text.count(HINT) == 1

    for _ in range(2):
        sweeping(storage, ledger)
        assert left(storage) == OF_THE_FIRST_VERSION
    assert str(id_of(storage)) in caplog.text

    sweeping(storage, ledger, adopt_storage=str(id_of(storage)))
    assert left(storage) == OF_THE_FIRST_VERSION[1:3], "a dataset without a catalog of today stays for its owner"


@pytest.mark.parametrize("folder", ["files", "batches", "ingestions", "datasets", "catalogs"])
def test_any_object_makes_a_storage_somebodys(folder: str, storage: Storage, ledger: Ledger) -> None:
    storage.write(f"{folder}/x/y", b"precious")
    assert not is_ours(storage, ledger)
    assert id_of(storage)
    assert not is_ours(storage, ledger)


@pytest.mark.parametrize("part", [sweep, sweep_batches, sweep_ingestions, sweep_datasets])
def test_a_redis_that_comes_back_empty_during_a_sweep_costs_nothing(
    part: Callable[..., int], storage: Storage, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_ours(storage, ledger)
    names = uploaded(storage, ledger, tmp_path)
    load(ParquetSink(storage, "alice", "ing_x", anonymous=True), document("a"))
    real = storage.stored

    def stored(folder: str) -> Iterator[Stored]:
        found = list(real(folder))
        ledger.client.flushall()  # names have been read, and records not yet
        return iter(found)

    monkeypatch.setattr(storage, "stored", stored)
    assert part(storage, ledger, spare_s=-60) == 0
    monkeypatch.undo()
    assert [name for name in left(storage) if not name.startswith("datasets/")] == names
    assert present(storage, "alice", "ing_x").catalog.exists


async def test_what_is_uploaded_before_there_is_a_documents_worker_is_guarded_too(
    redis_url: str, ledger: Ledger, tmp_path: Path, storage: Storage
) -> None:
    web = AsyncLedger.connect(redis_url)
    async with AsyncStorage(str(tmp_path / "storage"), web).writing("files/file-x") as file:
        file.write(b"precious")
    await web.close()
    old(storage, tmp_path, "files/file-x")
    ledger.client.flushall()

    sweeping(storage, ledger)
    assert storage.read("files/file-x") == b"precious"
    storage.delete("files/file-x")
    with pytest.raises(NotStored):
        storage.read("files/file-x")
