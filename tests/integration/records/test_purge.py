"""The steps of a purge: what one meets, what waits for workers, and that any of them may be the last of its process."""

from collections.abc import Sequence

import redis

from tasks.ledger import DOCUMENTS, Admission, CommitOutcome, Lane, NewTask, operations
from tasks.records.api_keys import read_keys
from tasks.records.batches import NewBatch, create_batch, new_batch_id, read_batch
from tasks.records.creation import RecordKind
from tasks.records.files import FileRecord, Purpose, file_id_from, put_file, read_file
from tasks.records.ingestion_operations import Move, create_ingestion, move_ingestion, read_ingestion
from tasks.records.ingestions import IngestionStatus, NewIngestion, new_ingestion_id
from tasks.records.purge import KEYS_AT_ONCE, PurgedRecord, Sweep, close_account, remove_record, sweep_owner
from tests.integration.ledger.driver import START_MS, Driver

DAY_MS = 86_400_000


def a_round(driver: Driver, owner: str) -> list[Sweep]:
    """Sweeps until a round is over."""
    swept = [driver.run(sweep_owner(owner))]
    while not swept[-1].over:
        swept.append(driver.run(sweep_owner(owner)))
    return swept


def batch_of(driver: Driver, owner: str) -> str:
    batch = NewBatch(new_batch_id(), owner, "file-1", "24h", window_ms=DAY_MS, ttl_ms=DAY_MS, key=("k" * 32, "d" * 32))
    return driver.run(create_batch(batch))


def job(driver: Driver, task_id: str, owner: str) -> NewTask:
    return driver.submission(task_id=task_id, queue=DOCUMENTS, lane=Lane.BULK, owner=owner, listed=False)


def records(swept: Sequence[Sweep]) -> list[PurgedRecord]:
    return [record for one in swept for record in one.records]


def test_nothing_is_met_of_others(driver: Driver) -> None:
    task_id, batch_id = driver.submit(owner="ann", listed=True).task_id, batch_of(driver, "ann")
    for other in ("an", "anna", "ann:x", "*", "bob"):
        (swept,) = a_round(driver, other)
        assert (swept.clean, swept.tasks, swept.records) == (True, 0, [])
        driver.run(close_account(other))
    assert driver.task(task_id).owner == "ann"
    assert [task.id for task in driver.listed("ann").tasks] == [task_id]
    batch = driver.run(read_batch(batch_id))
    assert batch is not None
    assert not batch.deleted


def test_a_record_waits_for_the_worker_that_has_a_job_of_it(driver: Driver) -> None:
    batch_id = batch_of(driver, "ann")
    documents = Driver(driver.client, DOCUMENTS)
    driver.run(operations.submit(job(driver, f"{batch_id}-validate", "ann")))
    claim = documents.claim()
    assert claim.units

    swept = a_round(driver, "ann")
    assert records(swept) == [PurgedRecord(RecordKind.BATCH, batch_id, busy=True)]
    assert sum(one.tasks for one in swept) == 1
    batch = driver.run(read_batch(batch_id))
    assert batch is not None
    assert (str(batch.status), batch.deleted) == ("cancelled", True)
    assert documents.commit(claim) == [CommitOutcome.STALE]

    documents.release(claim)  # or its lease ends
    (record,) = records(a_round(driver, "ann"))
    assert not record.busy
    assert not driver.client.sismember("eq:open-batches", batch_id), "no step removes the record before its objects"
    assert driver.run(remove_record(record))
    assert not driver.client.exists("eq:open-batches", f"eq:batch:{batch_id}", "eq:batches:ann", "eq:batches-open:ann")
    assert not driver.run(remove_record(record)), "this very call, again"
    assert a_round(driver, "ann")[-1].clean


def test_an_ingestion_ends_with_all_its_tasks_and_goes_on_no_more(driver: Driver) -> None:
    new = NewIngestion(new_ingestion_id(), "ann", {"model": "m"}, DAY_MS)
    driver.run(create_ingestion(new))
    begun = Move([IngestionStatus.QUEUED], to=IngestionStatus.IN_PROGRESS, set={"list_number": 3, "load_number": 2})
    driver.run(move_ingestion(new.id, begun, [job(driver, f"{new.id}-{name}", "ann") for name in ("list-3", "load-1")]))

    swept = a_round(driver, "ann")
    assert records(swept) == [PurgedRecord(RecordKind.INGESTION, new.id, busy=False)]
    assert sum(one.tasks for one in swept) == 2
    onwards = Move([IngestionStatus.IN_PROGRESS], set={"list_number": 4})
    assert not driver.run(move_ingestion(new.id, onwards, [job(driver, f"{new.id}-list-4", "ann")])).moved
    for record in records(swept):
        driver.run(remove_record(record))
    assert driver.run(read_ingestion(new.id)) is None
    assert a_round(driver, "ann")[-1].clean


def test_a_purged_owner_has_a_mark_that_stays(driver: Driver) -> None:
    driver.run(sweep_owner("ann"))
    begun = driver.run(read_keys(owners=["ann", "bob"])).purged
    assert begun == {"ann": driver.now_ms / 1000}
    driver.advance(1000)
    driver.run(sweep_owner("ann"))
    driver.run(close_account("ann"))
    assert driver.run(read_keys(owners=["ann"])).purged == begun


def test_a_round_goes_on_where_the_call_before_has_stopped(driver: Driver) -> None:
    ids = [driver.submit(owner="ann", listed=True).task_id for number in range(KEYS_AT_ONCE)]
    first = driver.run(sweep_owner("ann"))
    assert (first.over, first.clean) == (False, False)
    assert 0 < first.tasks < len(ids)
    others = a_round(driver, "ann")
    assert first.tasks + sum(one.tasks for one in others) == len(ids)
    assert not others[-1].clean, "this round has met something, so another one must come"
    assert a_round(driver, "ann")[-1].clean


def test_a_cursor_of_another_server_begins_anew(driver: Driver, redis_client: "redis.Redis") -> None:
    for _ in range(KEYS_AT_ONCE):
        driver.submit(owner="bob")
    assert not driver.run(sweep_owner("ann")).over
    task_id = driver.submit(owner="ann").task_id
    late, following = 0, 1
    while following:  # the last cursor of this server, behind which there is next to nothing
        following, _ = redis_client.scan(late, count=5)
        late = following or late
    redis_client.hset("eq:purge:ann", mapping={"server": "another", "cursor": late})
    assert sum(one.tasks for one in a_round(driver, "ann")) == 1
    assert driver.run(operations.read_task(task_id)) is None


def test_a_full_redis_is_purged(driver: Driver, redis_client: "redis.Redis") -> None:
    driver.submit(owner="ann")
    made_ms = START_MS
    record = FileRecord(file_id_from(made_ms, "a"), "ann", "a", Purpose.BATCH, 10, made_ms, None, "files/a")
    driver.run(put_file(record))
    redis_client.config_set("maxmemory", 1)
    try:
        (swept,) = a_round(driver, "ann")
        assert (swept.tasks, [file.id for file in swept.files]) == (1, [record.id])
        assert driver.run(read_file(record.id)), "the record stays until the object is gone"
        driver.run(close_account("ann"))
    finally:
        redis_client.config_set("maxmemory", 0)


def test_results_that_have_expired_are_counted_out(driver: Driver, redis_client: "redis.Redis") -> None:
    admission = Admission(max_backlog_s=1e9, vector_bytes=100)
    documents = Driver(driver.client, DOCUMENTS)
    for owner in ("ann", "bob"):
        documents.submit(owner=owner, admission=admission)
    documents.work_off()
    for task_id in redis_client.keys("eq:task:*"):
        redis_client.delete(task_id)  # as Redis does when they expire, and WATCH comes later
    a_round(driver, "ann")
    driver.run(close_account("ann"))
    left = [*redis_client.hkeys("eq:held"), *redis_client.zrange("eq:held-until", 0, -1)]
    assert left
    assert not any(b"ann" in entry for entry in left)
    assert not any(b"ann" in field for field in redis_client.hkeys("eq:q:@documents:state"))
