"""Records of files: an owner's account, pages, expiry, and the sweep."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from stack.testing import wait_until
from tasks.documents.sweep import sweep_litter
from tasks.errors import StorageFull
from tasks.records.batches import NewBatch, create_batch, new_batch_id
from tasks.records.creation import RecordLimits
from tasks.records.files import (
    MAX_PAGE,
    FilePage,
    FileRecord,
    Order,
    Purpose,
    delete_file,
    file_id_from,
    list_files,
    new_file_id,
    put_file,
    read_file,
    read_files,
    require_room,
    stored_name,
)
from tasks.records.ingestion_operations import create_ingestion
from tasks.records.ingestions import NewIngestion, new_ingestion_id
from tasks.storage.storage import Storage
from tests.integration.ledger.driver import START_MS, Driver
from tests.raises_code import raises_code

QUOTA_BYTES = 1000


def record(number: int, *, owner: str = "ann", expires_in_ms: int | None = None, **changes: object) -> FileRecord:
    """The file that was made at `number` milliseconds."""
    made_ms = START_MS + number
    fields: dict[str, object] = {
        "id": file_id_from(made_ms, f"{owner} {number}"),
        "owner": owner,
        "filename": "ü b.jsonl",
        "purpose": Purpose.BATCH,
        "size_bytes": 100,
        "created_ms": made_ms,
        "expires_ms": None if expires_in_ms is None else made_ms + expires_in_ms,
    } | changes
    return FileRecord(stored=stored_name(str(fields["id"])), **fields)  # type: ignore[arg-type]


def put(driver: Driver, *numbers: int, **changes: object) -> list[FileRecord]:
    return [driver.ledger.run(put_file(record(number, **changes))) for number in numbers]  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def forgotten(driver: Driver, redis_client: redis.Redis) -> Iterator[None]:
    """Files without an expiry stay until they are deleted; then nothing may be left."""
    yield
    for key in list(redis_client.scan_iter("eq:file:*")):
        driver.ledger.run(delete_file(key.decode().removeprefix("eq:file:")))
    assert list(redis_client.scan_iter("eq:file*")) == []


def test_a_record_is_read_as_it_was_put(driver: Driver) -> None:
    driver.advance(2)
    for file in (record(1), record(2, expires_in_ms=60_000, purpose=Purpose.BATCH_OUTPUT)):
        assert driver.ledger.run(put_file(file, QUOTA_BYTES)) == file
        assert driver.ledger.run(read_file(file.id)) == file
    assert driver.ledger.run(read_file("file-nobody")) is None
    assert driver.ledger.run(read_files([record(3).id, record(1).id])) == [None, record(1)]


@pytest.mark.parametrize("skew_ms", [-3_600_000, 3_600_000])
def test_a_file_lives_as_long_as_it_was_said_whatever_the_clock_of_its_host(driver: Driver, skew_ms: int) -> None:
    (file,) = put(driver, skew_ms, expires_in_ms=60_000)
    assert file.created_ms == START_MS + skew_ms
    assert file.expires_ms == file.created_ms + 60_000
    assert 0 < driver.client.pttl(f"eq:file:{file.id}") <= 60_000


def test_the_first_record_of_an_id_stays(driver: Driver, redis_client: redis.Redis) -> None:
    (first,) = put(driver, 1)
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    again = record(1, size_bytes=7, filename="other")

    assert driver.ledger.run(put_file(again, QUOTA_BYTES)) == first
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


def test_a_deleted_record_is_gone_with_its_account(driver: Driver, redis_client: redis.Redis) -> None:
    (file,) = put(driver, 1, expires_in_ms=60_000)

    assert driver.ledger.run(delete_file(file.id)) == file
    assert driver.ledger.run(delete_file(file.id)) is None
    assert list(redis_client.scan_iter("eq:file*")) == []


@pytest.mark.parametrize(
    ("held", "size_bytes", "fits"),
    [((), 1000, True), ((), 1001, False), ((900,), 100, True), ((900,), 101, False)],
)
def test_the_quota(driver: Driver, held: tuple[int, ...], size_bytes: int, *, fits: bool) -> None:
    for number, size in enumerate(held):
        put(driver, number, size_bytes=size)
    put(driver, 50, owner="bob", size_bytes=1000)
    new = record(99, size_bytes=size_bytes)
    ask = require_room(new.owner, size_bytes, QUOTA_BYTES)

    if fits:
        driver.ledger.run(ask)
        driver.ledger.run(put_file(new, QUOTA_BYTES))
        return
    with raises_code("quota_exceeded", match="Delete some"):
        driver.ledger.run(ask)
    with raises_code("quota_exceeded", match="Delete some"):
        driver.ledger.run(put_file(new, QUOTA_BYTES))
    assert driver.ledger.run(read_file(new.id)) is None
    assert driver.ledger.run(put_file(new)) == new


def test_asking_for_room_changes_nothing(driver: Driver, redis_client: redis.Redis) -> None:
    put(driver, 1, size_bytes=600, expires_in_ms=1000)
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter("eq:*")}
    with raises_code("quota_exceeded"):
        driver.ledger.run(require_room("ann", 401, QUOTA_BYTES))
    driver.ledger.run(require_room("ann", 400, QUOTA_BYTES))
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter("eq:*")} == before


@pytest.mark.parametrize("asks", ["room", "batch"])
def test_whatever_has_expired_does_not_count_however_much_it_is(driver: Driver, asks: str) -> None:
    put(driver, *range(2600), expires_in_ms=10_000)
    put(driver, 3000)
    driver.advance(20_000)
    if asks == "room":
        driver.ledger.run(require_room("ann", 900, QUOTA_BYTES))
    else:
        new = NewBatch(new_batch_id(), "ann", "file-1", "1h", 1000, 1000)
        driver.ledger.run(create_batch(new, RecordLimits(quota_bytes=QUOTA_BYTES)))
    with raises_code("quota_exceeded", match=r"hold 1,001 bytes|hold 1,901 bytes"):
        driver.ledger.run(put_file(record(4001, size_bytes=901), QUOTA_BYTES))


def test_whoever_has_stored_too_much_makes_nothing_new(driver: Driver) -> None:
    admission = RecordLimits(quota_bytes=QUOTA_BYTES)

    def batch(**changed: Any) -> NewBatch:
        values: dict[str, Any] = {"owner": "ann", "window_ms": 1000, "ttl_ms": 1000} | changed
        return NewBatch(new_batch_id(), input_file_id="file-1", completion_window="1h", **values)

    def ingestion() -> NewIngestion:
        return NewIngestion(new_ingestion_id(), "ann", {"model": "m"}, 1000)

    put(driver, 1, size_bytes=1000)
    first = driver.ledger.run(create_batch(batch(key=("a", "d")), admission))
    driver.ledger.run(create_ingestion(ingestion(), RecordLimits(quota_bytes=QUOTA_BYTES)))
    put(driver, 2, size_bytes=1)  # as an output is, without a quota
    with raises_code("quota_exceeded", match="hold 1,001 bytes"):
        driver.ledger.run(create_batch(batch(), admission))
    with raises_code("quota_exceeded"):
        driver.ledger.run(create_ingestion(ingestion(), RecordLimits(quota_bytes=QUOTA_BYTES)))
    assert driver.ledger.run(create_batch(batch(key=("a", "d")), admission)) == first, "a repetition is no new one"
    driver.ledger.run(create_batch(batch(owner="bob"), admission))
    driver.ledger.run(delete_file(record(2).id))
    driver.ledger.run(create_batch(batch(), admission))


def test_deleting_makes_room(driver: Driver) -> None:
    first, _ = put(driver, 1, 2, size_bytes=500)
    with raises_code("quota_exceeded"):
        driver.ledger.run(put_file(record(3), QUOTA_BYTES))

    driver.ledger.run(delete_file(first.id))
    driver.ledger.run(put_file(record(3, size_bytes=500), QUOTA_BYTES))
    with raises_code("quota_exceeded"):
        driver.ledger.run(put_file(record(4, size_bytes=1), QUOTA_BYTES))


def test_an_expired_file_makes_room(driver: Driver, redis_client: redis.Redis) -> None:
    put(driver, 1, size_bytes=400)
    (short,) = put(driver, 2, size_bytes=600, expires_in_ms=50)
    wait_until(lambda: driver.ledger.run(read_file(short.id)) is None, message="the record did not expire")
    with raises_code("quota_exceeded"):
        driver.ledger.run(put_file(record(3, size_bytes=600), QUOTA_BYTES))

    driver.advance(51)
    driver.ledger.run(put_file(record(3, size_bytes=600), QUOTA_BYTES))
    assert redis_client.get("eq:filebytes:ann") == b"1000"
    assert redis_client.zcard("eq:files:ann") == 2


def test_the_account_lives_as_long_as_the_last_file(driver: Driver, redis_client: redis.Redis) -> None:
    def ttls() -> set[int]:
        return {(redis_client.ttl(key) + 5) // 10 for key in redis_client.scan_iter("eq:file*:ann")}

    put(driver, 1, expires_in_ms=1_000_000)
    assert ttls() == {106}
    (long,) = put(driver, 2, expires_in_ms=5_000_000)
    assert ttls() == {506}
    (endless,) = put(driver, 3)
    assert ttls() == {0}
    driver.ledger.run(delete_file(endless.id))
    assert ttls() == {506}
    driver.ledger.run(delete_file(long.id))
    assert ttls() == {106}


def pages(driver: Driver, **wish: object) -> list[list[int]]:
    """Times of creation after START_MS, page by page."""
    found: list[list[int]] = []
    after = None
    while True:
        page: FilePage = driver.ledger.run(list_files("ann", after=after, **wish))  # type: ignore[arg-type]
        found.append([file.created_ms - START_MS for file in page.files])
        after = page.next
        if after is None:
            return found


def test_pages_by_time(driver: Driver) -> None:
    put(driver, 3, 1, 5, 4, 2)
    put(driver, 9, owner="bob")

    assert pages(driver) == [[5, 4, 3, 2, 1]]
    assert pages(driver, limit=2) == [[5, 4], [3, 2], [1]]
    assert pages(driver, limit=5, order=Order.ASC) == [[1, 2, 3, 4, 5]]
    assert driver.ledger.run(list_files("nobody")) == FilePage((), None)


def test_pages_of_one_purpose(driver: Driver) -> None:
    put(driver, 1, 4)
    put(driver, 2, 3, purpose=Purpose.VISION)

    assert pages(driver, purpose="vision", limit=1) == [[3], [2], []]
    assert pages(driver, purpose="nothing") == [[]]


@pytest.mark.parametrize(("order", "expected"), [(Order.DESC, [2, 1]), (Order.ASC, [4, 5])])
def test_turning_pages_while_files_are_deleted(driver: Driver, order: Order, expected: list[int]) -> None:
    put(driver, 1, 2, 4, 5)
    (gone,) = put(driver, 3)
    driver.ledger.run(delete_file(gone.id))

    page = driver.ledger.run(list_files("ann", after=gone.id, order=order))
    assert [file.created_ms - START_MS for file in page.files] == expected


def test_turning_pages_among_files_of_one_moment(driver: Driver) -> None:
    ids = sorted(file_id_from(START_MS, str(number)) for number in range(5))
    for one in ids:
        driver.ledger.run(put_file(record(0, id=one)))
    driver.ledger.run(delete_file(ids[2]))

    for order, expected in ((Order.ASC, ids[3:]), (Order.DESC, ids[1::-1])):
        page = driver.ledger.run(list_files("ann", after=ids[2], order=order))
        assert [file.id for file in page.files] == expected


def test_a_call_looks_at_a_bounded_number(driver: Driver) -> None:
    put(driver, *range(MAX_PAGE + 10), purpose=Purpose.VISION)
    put(driver, MAX_PAGE + 20)

    assert [len(page) for page in pages(driver, limit=10_000)] == [MAX_PAGE, 11]
    assert pages(driver, purpose="batch", order=Order.ASC) == [[], [MAX_PAGE + 20]]


def test_a_full_redis_takes_no_file_and_deletes_one(driver: Driver, redis_client: redis.Redis) -> None:
    (held,) = put(driver, 1)
    limit = redis_client.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StorageFull):
            driver.ledger.run(put_file(record(2), QUOTA_BYTES))
        assert driver.ledger.run(read_file(record(2).id)) is None
        assert driver.ledger.run(list_files("ann")).files == (held,)
        assert driver.ledger.run(delete_file(held.id)) == held
    finally:
        redis_client.config_set("maxmemory", limit)


# ---- the sweep -------------------------------------------------------------------------------------------------------


@pytest.fixture
def storage(driver: Driver, tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


def stored(storage: Storage) -> list[str]:
    return sorted(stored.name for stored in storage.stored("files"))


def test_the_sweep_deletes_a_file_a_minute_after_it_has_expired(driver: Driver, storage: Storage) -> None:
    kept, deleted = put(driver, 1, 2)
    expiring, early = put(driver, 3, 4, expires_in_ms=5_000)
    unknown = stored_name(new_file_id())
    for name in (kept.stored, deleted.stored, expiring.stored, unknown):
        storage.write(name, b"x")
    for file in (deleted, early):  # who deletes a file has deleted its bytes before
        driver.ledger.run(delete_file(file.id))

    driver.stand_still(64_000)
    assert sweep_litter(storage, driver.ledger) == 0
    driver.stand_still(2_000)
    assert sweep_litter(storage, driver.ledger) == 1
    driver.stand_still(10**9)
    assert sweep_litter(storage, driver.ledger) == 0
    assert stored(storage) == sorted([kept.stored, deleted.stored, unknown])


def test_the_sweep_works_off_many(driver: Driver, storage: Storage) -> None:
    held, expired = put(driver, *range(5)), put(driver, *range(5, 255), expires_in_ms=5_000)
    for file in (*held, *expired):
        storage.write(file.stored, b"")
    driver.stand_still(66_000)

    assert sweep_litter(storage, driver.ledger) == 250
    assert stored(storage) == sorted(file.stored for file in held)
