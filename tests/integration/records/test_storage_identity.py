"""The sweep of a storage that does not let everything be deleted."""

from pathlib import Path

import pytest

from tasks.documents.cleanup import sweep
from tasks.errors import StorageUnavailable
from tasks.records.storage_identity import adopt, id_of, is_ours, redis_id
from tasks.storage.storage import Storage
from tests.integration.ledger.driver import Driver


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


def stored(storage: Storage) -> list[str]:
    return sorted(stored.name for stored in storage.stored("files"))


def test_the_sweep_goes_on_beside_what_cannot_be_deleted(
    driver: Driver, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_ours(storage, driver.ledger)
    for number in range(30):
        storage.write(f"files/file-{number}", b"x")
    (stuck, *_) = stored(storage)
    real = storage.delete

    def delete(name: str) -> None:
        if name == stuck:
            raise StorageUnavailable("It denies deleting.", retry_after_s=10)
        real(name)

    monkeypatch.setattr(storage, "delete", delete)
    with pytest.raises(StorageUnavailable):
        sweep(storage, driver.ledger, spare_s=-1)
    assert stored(storage) == [stuck]


def test_the_sweep_does_not_go_on_for_ever_while_the_storage_is_away(
    driver: Driver, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_ours(storage, driver.ledger)
    for number in range(50):
        storage.write(f"files/file-{number}", b"x")
    tried: list[str] = []

    def away(name: str) -> None:
        tried.append(name)
        raise StorageUnavailable("It does not answer.", retry_after_s=10)

    monkeypatch.setattr(storage, "delete", away)
    with pytest.raises(StorageUnavailable):
        sweep(storage, driver.ledger, spare_s=-1)
    assert len(tried) == 20


def test_a_redis_keeps_the_storage_that_it_met_first(driver: Driver, storage: Storage, tmp_path: Path) -> None:
    """The rest of it is in test_another_redis."""
    assert driver.run(redis_id()) == ""
    assert is_ours(storage, driver.ledger)
    id_in_redis = driver.run(redis_id())
    assert id_of(storage) == id_in_redis
    assert driver.run(redis_id("a" * 32)) == id_in_redis
    assert is_ours(storage, driver.ledger)
    driver.run(redis_id("b" * 32, replace=True))
    assert not is_ours(storage, driver.ledger)
    assert adopt(storage, driver.ledger, id_in_redis)
    assert id_of(storage) == driver.run(redis_id()) != id_in_redis
