"""The driver and the sweep of a real documents worker outlive whatever happens in a round."""

import threading
from collections.abc import Callable

import redis

from tasks.errors import NotStored
from tasks.ingestion.repeating import Repeating
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import JOBS_CHANNEL
from tasks.records.batches import BatchRecord, new_batch_id
from tasks.records.jobs import create_job
from tasks.records.store import ANY_ROOM
from tasks.storage.storage import Storage
from tasks.worker.idle_wait import Wakeup
from tests.integration.documents.conftest import TRIAL, DocumentsClient
from tests.processes import PATIENCE_S, RedisServer, Roles, wait_until


def _taken(storage: Storage) -> int:
    try:
        return int(storage.read("rounds"))
    except NotStored:
        return 0


def test_rounds_go_on_whatever_they_raise_and_after_an_outage(
    private_redis: RedisServer, private_roles: Roles, storage: Storage
) -> None:
    worker = private_roles.documents(module=TRIAL)
    wait_until(lambda: _taken(storage) >= 2, message="the rounds")
    private_redis.kill()
    wait_until(lambda: "the driver waits: ConnectionError" in worker.log(), message="a round that misses Redis")
    child = worker.child_pid
    private_redis.start()
    before = _taken(storage)
    wait_until(lambda: _taken(storage) > before, message="a round after the outage")
    with private_redis.client() as connection:
        documents = DocumentsClient(Ledger(connection))
        assert documents.answer(documents.submit_job("echo", "job"))["id"] == "job"
    assert worker.child_pid == child
    assert worker.log().count("the driver waits: ZeroDivisionError") == 2, "once before and once after"


def test_a_driver_that_hangs_loses_its_process_and_the_sweep_holds_up_nothing(roles: Roles, storage: Storage) -> None:
    worker = roles.worker(module=TRIAL, start=False, lease_s=2)
    worker.command.append("1")
    child = worker.start().child_pid
    wait_until(lambda: any(storage.stored("sweeps")), message="a sweep that never ends")
    before = _taken(storage)
    wait_until(lambda: _taken(storage) >= before + 2, message="rounds beside it")
    storage.write("hang/driver", b"1")
    wait_until(lambda: "the work has stood still for too long" in worker.log(), message="the notice")
    wait_until(lambda: worker.child_pid != child, message="another process")
    wait_until(lambda: 0 < _taken(storage) < before + 2, message="its rounds")


def test_a_new_job_wakes_a_driver_that_has_nothing_to_do(redis_client: redis.Redis) -> None:
    first, second, ledger = threading.Event(), threading.Event(), Ledger(redis_client)

    def note(_: Callable[[], None]) -> None:
        (second if first.is_set() else first).set()

    rounds = Repeating("driver", note, every_s=3600, bell=Wakeup(ledger, JOBS_CHANNEL))
    rounds.start()
    assert first.wait(PATIENCE_S)
    asked = {"input_file_id": "file-none", "completion_window": "24h"}
    record = BatchRecord(id=new_batch_id(), owner="o", request=asked, ttl_ms=1000, window_ms=1000)
    ledger.run(create_job(record, ANY_ROOM))
    assert second.wait(PATIENCE_S), "it was not woken"
    rounds.finish()
