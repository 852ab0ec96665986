"""The stepper of a real documents worker outlives whatever its steps raise."""

import threading

import redis

from stack.testing import PATIENCE_S, RedisServer, Roles, wait_until
from tasks.documents.context import StepContext
from tasks.documents.stepper import Stepper
from tasks.ledger.client import Ledger
from tasks.ledger.redis_keys import STEPS_CHANNEL
from tasks.records.ingestion_operations import create_ingestion
from tasks.records.ingestions import NewIngestion, new_ingestion_id
from tasks.storage.storage import NotStored, Storage
from tasks.worker.idle_wait import Wakeup
from tests.integration.documents.conftest import TRIAL, DocumentsClient
from worker_config.settings import load_settings


def _taken(storage: Storage) -> int:
    try:
        return int(storage.read("steps"))
    except NotStored:
        return 0


def test_steps_go_on_beside_one_that_fails_and_after_an_outage(
    private_redis: RedisServer, private_roles: Roles, storage: Storage
) -> None:
    worker = private_roles.documents(module=TRIAL)
    wait_until(lambda: _taken(storage) >= 2, message="the steps")
    private_redis.kill()
    wait_until(lambda: "step count waits: " in worker.log(), message="a step that misses Redis")
    child = worker.child_pid
    private_redis.start()
    before = _taken(storage)
    wait_until(lambda: _taken(storage) > before, message="a step after the outage")
    with private_redis.client() as connection:
        documents = DocumentsClient(Ledger(connection))
        assert documents.answer(documents.submit_job("echo", "job"))["id"] == "job"
    assert worker.child_pid == child
    assert worker.log().count("step fail waits: ZeroDivisionError") == 1


def test_a_step_that_hangs_loses_its_process_and_the_sweep_holds_up_nothing(roles: Roles, storage: Storage) -> None:
    worker = roles.worker(module=TRIAL, start=False, lease_s=2)
    worker.command.append("1")
    child = worker.start().child_pid
    wait_until(lambda: any(storage.stored("sweeps")), message="a sweep that never ends")
    before = _taken(storage)
    wait_until(lambda: _taken(storage) >= before + 2, message="steps beside it")
    storage.write("hang/steps", b"1")
    wait_until(lambda: "the work has stood still for too long" in worker.log(), message="the notice")
    wait_until(lambda: worker.child_pid != child, message="another process")
    wait_until(lambda: 0 < _taken(storage) < before + 2, message="its steps")


def test_a_step_that_asks_for_it_is_taken_again_at_once(redis_client: redis.Redis, storage: Storage) -> None:
    taken, enough = [0], threading.Event()

    def ask(context: StepContext) -> None:
        taken[0] += 1
        if taken[0] < 5:
            context.again()
        else:
            enough.set()

    context = StepContext(Ledger(redis_client), storage, load_settings(), send_bell=lambda _: None, stop=lambda: False)
    stepper = Stepper(context, [ask], every_s=3600)
    stepper.start()
    assert enough.wait(PATIENCE_S), f"taken {taken[0]} times"
    stepper.finish()
    assert taken[0] == 5


def test_a_new_ingestion_wakes_a_stepper_that_has_nothing_to_do(redis_client: redis.Redis, storage: Storage) -> None:
    first, second, ledger = threading.Event(), threading.Event(), Ledger(redis_client)

    def note(_: StepContext) -> None:
        (second if first.is_set() else first).set()

    context = StepContext(ledger, storage, load_settings(), send_bell=lambda _: None, stop=lambda: False)
    stepper = Stepper(context, [note], every_s=3600, bell=Wakeup(ledger, STEPS_CHANNEL))
    stepper.start()
    assert first.wait(PATIENCE_S)
    ledger.run(create_ingestion(NewIngestion(new_ingestion_id(), "o", {"model": "m"}, 1000)))
    assert second.wait(PATIENCE_S), "it was not woken"
    stepper.finish()
