"""Records of files: an owner's account, pages, expiry, and the sweep."""

import pytest

from tasks.ledger.heartbeat import watch
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records import store
from tasks.records.files import (
    UPLOAD_MS,
    FileRecord,
    Purpose,
    file_id_from,
    list_files,
    put_file,
    read_file,
    stored_name,
)
from tasks.records.store import ReadRecord, Room
from tests.integration.ledger.driver import START_MS, Driver
from tests.raises_code import raises_code

QUOTA = Room({"stored": 1000})


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
    return FileRecord(stored=stored_name(owner, str(fields["id"])), **fields)


def put(driver: Driver, *numbers: int, **changes: object) -> list[FileRecord]:
    files = [record(number, **changes) for number in numbers]  # type: ignore[arg-type]
    for file in files:
        driver.run(put_file(file))
    return files


def passes(driver: Driver, ms: int) -> None:
    """So much time, and somebody keeps house."""
    driver.advance(ms)
    driver.run(watch(DOCUMENTS))
    while driver.client.zcount("eq:ends", "-inf", driver.now_ms):
        driver.run(watch(DOCUMENTS))


@pytest.mark.parametrize(
    ("held", "size_bytes", "fits"),
    [((), 1000, True), ((), 1001, False), ((900,), 100, True), ((900,), 101, False)],
)
def test_the_quota(driver: Driver, held: tuple[int, ...], size_bytes: int, *, fits: bool) -> None:
    for number, size in enumerate(held):
        put(driver, number, size_bytes=size)
    put(driver, 50, owner="bob", size_bytes=1000)
    new = record(99, size_bytes=size_bytes)

    if fits:
        driver.run(put_file(new, QUOTA))
        return
    with raises_code("quota_exceeded", match="Delete some"):
        driver.run(put_file(new, QUOTA))
    assert driver.ledger.run(read_file(new.id)) is None
    driver.run(put_file(new))


def test_what_is_uploaded_counts_before_it_is_there_and_is_nobody_s_yet(driver: Driver) -> None:
    coming = record(1, size_bytes=600, state="uploading")
    driver.run(put_file(coming, QUOTA, change="one"))
    assert driver.run(read_file(coming.id)) is None
    assert pages(driver) == [[]]
    with raises_code("quota_exceeded"):
        driver.run(put_file(record(2, size_bytes=401), QUOTA))

    for name, before in (("two", "one"), ("three", "two")):  # bytes come
        passes(driver, UPLOAD_MS - 1)
        assert driver.run(store.change(ReadRecord(coming.id, coming, before), coming, for_ms=coming.life_ms, name=name))
    with raises_code("quota_exceeded", match="hold 1,001 bytes"):
        larger = coming.model_copy(update={"size_bytes": 1001})
        driver.run(store.change(ReadRecord(coming.id, coming, "three"), larger, QUOTA))
    there = coming.model_copy(update={"state": "stored"})
    assert driver.run(store.change(ReadRecord(coming.id, coming, "three"), there, for_ms=there.life_ms))
    passes(driver, 10 * UPLOAD_MS)
    assert driver.run(read_file(coming.id)) == there
    assert pages(driver) == [[1]]


def pages(driver: Driver, **wish: object) -> list[list[int]]:
    """Times of creation after START_MS, page by page."""
    found: list[list[int]] = []
    after = None
    while True:
        page = driver.run(list_files("ann", after=after, **wish))  # type: ignore[arg-type]
        found.append([one.record.created_ms - START_MS for one in page.records if one.record])
        if not page.more:
            return found
        after = page.records[-1].id
