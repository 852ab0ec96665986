"""What the sweep deletes, and what it leaves: of a copy, of another Redis, of a storage that is not there."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import redis

from tasks.errors import NotStored, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import DRIVER
from tasks.records.batches import BatchRecord
from tasks.records.jobs import ended_jobs
from tasks.records.storage_identity import open_proved
from tasks.storage.__main__ import main, require_sweeper, unknown_objects
from tasks.storage.folder import LocalFolder
from tasks.storage.purged_owners import RARELY_S
from tasks.storage.storage import Storage
from tasks.storage.sweep import GRACE_S, RENEW_S, SWEEPER, TAKE_OVER_S, run_id_of, sweeper_of
from tests.bulk import line
from tests.integration.batches.hands import Hands, request
from tests.integration.documents.ingestions.hands import IngestionHands
from tests.processes import Roles, WorkerProcess, wait_until
from tests.thorough import some
from worker_config.settings import Settings


def begin(hands: Hands) -> None:
    """Twice, because whoever takes a storage waits for the next look; and once more: what was seen is due then."""
    for after_s in (0, RENEW_S + 1, GRACE_S + 1):
        hands.look(after_s)


@pytest.fixture
def hands(redis_url: str, tmp_path: Path) -> Iterator[IngestionHands]:
    ledger = Ledger.connect(redis_url)
    yield IngestionHands(ledger, tmp_path, storage=open_proved(str(tmp_path / "storage"), ledger.run))
    ledger.close()


@pytest.fixture
def copy(hands: IngestionHands) -> Iterator[Hands]:
    """A Redis that was made of a backup, with the storage of the original: here another database."""
    original = hands.ledger.client
    place = original.get_connection_kwargs()
    with redis.Redis(host=place["host"], port=place["port"], db=7) as client:
        for key in set(original.scan_iter("eq:*")) - {DRIVER.encode()}:  # which ends in seconds
            client.restore(key, max(0, original.pttl(key)), original.dump(key) or b"")
        yield Hands(Ledger(client), Path("unused"), storage=hands.storage)
        client.flushdb()


def everything(storage: Storage) -> set[str]:
    return {found.name for folder in ("anonymous", "datasets") for found in storage.stored(folder)}


def work_of(storage: Storage, job_id: str) -> list[str]:
    """What lies in the storage of a job that made no file."""
    return sorted(found.name for found in storage.stored(f"anonymous/{job_id}") if "file-" not in found.name)


def ended_batch(hands: Hands) -> str:
    batch_id = hands.create([request("a", "x")])
    hands.until(lambda: hands.batch(batch_id).status.terminal)
    assert work_of(hands.storage, batch_id)
    return batch_id


def test_a_copy_of_the_redis_deletes_nothing_while_the_original_sweeps(
    hands: IngestionHands, copy: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    made = hands.file("a.txt", b"made after the backup")
    begin(hands)
    ended_batch(copy)  # which the original has never heard of
    there = everything(hands.storage)
    for _ in range(30):
        hands.look(RENEW_S + 1)
        copy.look(RENEW_S + 1)
    assert everything(hands.storage) == there
    assert hands.storage.read(f"anonymous/{made}")
    assert sweeper_of(hands.storage.read(SWEEPER)) == run_id_of(hands.ledger) != run_id_of(copy.ledger)
    assert caplog.text.count("nothing is deleted from the storage") == 1
    assert run_id_of(copy.ledger) in caplog.text
    with pytest.raises(StorageUnavailable, match="Another Redis"):
        require_sweeper(hands.storage, copy.ledger)


def test_a_redis_takes_a_storage_over_that_nobody_sweeps_any_more(hands: IngestionHands, copy: Hands) -> None:
    begin(hands)
    batch_id = ended_batch(copy)
    for after_s in (0, TAKE_OVER_S - 1, 2):
        copy.look(after_s)
    assert sweeper_of(hands.storage.read(SWEEPER)) == run_id_of(copy.ledger)
    copy.look(RENEW_S)
    assert work_of(hands.storage, batch_id), "it has seen the end in this moment"
    copy.look(GRACE_S + 1)
    assert work_of(hands.storage, batch_id) == []


def test_an_empty_redis_deletes_nothing_and_the_storage_keeps_its_datasets(hands: IngestionHands) -> None:
    hands.texts({"a": "first"})
    hands.work()
    there = everything(hands.storage)
    hands.ledger.client.flushall()
    again = IngestionHands(hands.ledger, Path("unused"), storage=hands.storage, datasets=hands.settings.datasets)
    begin(again)
    for _ in range(5):
        again.look(86_400)
    assert everything(hands.storage) == there
    assert again.loaded() == {"a": "first"}


def test_the_sweep_goes_on_beside_what_cannot_be_deleted(
    hands: IngestionHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [ended_batch(hands) for _ in range(9)]
    real = LocalFolder.delete

    def delete(self: LocalFolder, name: str) -> None:
        if away or ended[3] in name:
            raise StorageUnavailable("It denies deleting.", retry_after_s=10)
        real(self, name)

    monkeypatch.setattr(LocalFolder, "delete", delete)
    away = True
    begin(hands)
    assert all(work_of(hands.storage, batch_id) for batch_id in ended)
    away = False
    hands.look(RARELY_S)
    assert [batch_id for batch_id in ended if work_of(hands.storage, batch_id)] == [ended[3]]
    assert [job_id for job_id, _ in hands.ledger.run(ended_jobs(BatchRecord))] == [ended[3]]


def test_unknown_objects_are_listed_and_removed_by_a_person(
    hands: IngestionHands,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hands.texts({"a": "first"})
    hands.work()
    batch_id = ended_batch(hands)
    lost = {"anonymous/file-x", "anonymous/batch_x/1.rows.x", "anonymous/ing_x/listed.json"}
    for name in lost:
        hands.storage.write(name, b"x")
    assert {found.name for found in unknown_objects(hands.storage, hands.ledger)} == lost
    for name, value in (("REDIS_URL", redis_url), ("STORAGE_URL", str(tmp_path / "storage"))):
        monkeypatch.setenv(f"EMBEDQ_{name}", value)

    assert main(["unknown", "--delete"]) == 1
    assert "No Redis has swept it" in capsys.readouterr().err, "nobody has said whose storage it is"
    begin(hands)
    needed = everything(hands.storage) - lost
    assert main(["unknown"]) == 0
    printed = capsys.readouterr().out
    assert [name for name in sorted(lost | {batch_id}) if name in printed] == sorted(lost)
    assert main(["unknown", "--delete"]) == 0
    assert "younger than a day" in capsys.readouterr().out
    assert everything(hands.storage) >= lost
    for path in (tmp_path / "storage").rglob("*"):
        os.utime(path, (time.time() - 2 * 86_400,) * 2)
    assert main(["unknown", "--delete"]) == 0
    assert everything(hands.storage) == needed


def test_a_role_that_starts_makes_nothing_below_a_mount_point(hands: IngestionHands, tmp_path: Path) -> None:
    made = hands.file("a.txt", b"on the disk")
    disk, away = tmp_path / "storage", tmp_path / "unmounted"
    disk.rename(away)
    disk.mkdir()
    with pytest.raises(StorageUnavailable, match="mounted"):
        open_proved(str(disk), hands.ledger.run)
    assert list(disk.iterdir()) == []
    with pytest.raises(StorageUnavailable):  # of a role that was there before
        hands.file("b.txt", b"below the mount point")
    disk.rmdir()
    away.rename(disk)
    assert open_proved(str(disk), hands.ledger.run).read(f"anonymous/{made}") == b"on the disk"


@pytest.mark.parametrize("wrong", some(["documents", "worker"], "documents"))
def test_work_waits_while_a_role_has_another_storage(wrong: str, roles: Roles, tmp_path: Path) -> None:
    right, other = ({"storage_url": str(tmp_path / name)} for name in ("right", "other"))
    api = roles.api(storage_url=right["storage_url"])
    begin: dict[str, Callable[..., WorkerProcess]] = {"documents": roles.documents, "worker": roles.worker}
    with api.client() as client:
        data = b"".join(orjson.dumps(line(f"{n}", f"text {n}")) + b"\n" for n in range(5))
        file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", data)}).json()
        begun = {name: start(**(other if name == wrong else right)) for name, start in begin.items()}
        api.wait_ready()
        asked = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
        path = f"/v1/batches/{client.post('/v1/batches', json=asked).json()['id']}"

        def waits() -> bool:
            waiting = client.get(path).json()["waiting"]
            return waiting["code"] == "storage_unavailable" and "EMBEDQ_STORAGE_URL" in waiting["message"]

        wait_until(waits, message="the batch waits for the storage of a role")
        assert "EMBEDQ_STORAGE_URL" in client.get("/health/ready").json()["storage"]
        assert not (tmp_path / "other").exists(), "nothing is made there"

        begun[wrong].stop()
        begin[wrong](**right)
        wait_until(lambda: client.get(path).json()["status"] == "completed")
        assert client.get(path).json()["request_counts"] == {"total": 5, "completed": 5, "failed": 0}
        wait_until(lambda: client.get("/health/ready").json()["storage"] is None)


def test_a_redis_that_has_stored_something_takes_no_empty_storage_by_itself(
    hands: IngestionHands, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_id = hands.file("a.txt", b"text")
    with pytest.raises(StorageUnavailable, match="EMBEDQ_STORAGE_URL"):
        open_proved(str(tmp_path / "elsewhere"), hands.ledger.run)
    shutil.rmtree(tmp_path / "storage")  # its disk was lost, and an empty one is mounted
    Storage.open(str(tmp_path / "storage"))
    for use in (
        lambda: hands.storage.read(f"anonymous/{file_id}"),
        lambda: hands.storage.size_bytes(f"anonymous/{file_id}"),
        lambda: list(hands.storage.chunks(f"anonymous/{file_id}")),
        lambda: open_proved(str(tmp_path / "storage"), hands.ledger.run),
    ):
        with pytest.raises(StorageUnavailable, match="embedq storage accept"):
            use()
    monkeypatch.setenv("EMBEDQ_REDIS_URL", redis_url)
    monkeypatch.setenv("EMBEDQ_STORAGE_URL", str(tmp_path / "storage"))
    assert main(["accept"]) == 0
    with pytest.raises(NotStored):
        hands.storage.read(f"anonymous/{file_id}")
    hands.storage.write(f"anonymous/{file_id}", b"text again")


def test_the_usual_place_does_not_depend_on_the_folder_in_which_a_role_starts() -> None:
    assert LocalFolder.path_of(Settings().storage_url) == Path.home() / ".embedq" / "storage"
