"""Processes and servers that stand still instead of dying, and models that take long to load."""

import signal
from functools import partial

import psutil
import pytest

from tasks.ledger.cancel import cancel
from tasks.ledger.task import Lane
from tasks.worker.process.parent import MOST_LOADS
from tests.faults.conftest import QUICK, with_patience
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, WorkerProcess, wait_until
from worker_config.process_exit_codes import OVERDUE_EXIT_CODE

pytestmark = pytest.mark.faults


def test_a_parent_that_hangs_is_killed_by_its_child(private_roles: Roles, client: LedgerClient) -> None:
    worker = with_patience(private_roles.worker(start=False, **QUICK), parent_s=2).start()
    child = psutil.Process(worker.child_pid)
    worker.send(signal.SIGSTOP)
    assert worker.wait() == -signal.SIGKILL
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, message="the child's end")
    assert "the parent has hung" in worker.log()
    worker.start()
    client.completed(client.submit(["it goes on"]))


def test_a_process_whose_interpreter_is_held_is_replaced(private_roles: Roles, client: LedgerClient) -> None:
    worker = with_patience(private_roles.worker(start=False, **QUICK), child_s=2).start()
    child = psutil.Process(worker.child_pid)
    frozen = client.submit(["!!freeze!!"])
    wait_until(lambda: client.overview().leases > 0, message="a claim")
    client.ledger.run(cancel(client.model, frozen))  # or its successors would freeze too
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, message="the child's end")
    assert "replacing the child" in worker.log()
    client.completed(client.submit(["it goes on"]))


def test_a_stop_does_not_wait_for_a_redis_that_hangs(
    private_redis: RedisServer, private_roles: Roles, client: LedgerClient
) -> None:
    worker = with_patience(private_roles.worker(start=False, **QUICK), stop_s=2).start()
    task = client.submit([f"{n} " + "word " * 50 for n in range(100)], lane=Lane.BULK)
    wait_until(lambda: client.overview().leases > 0, message="a claim")
    child = psutil.Process(worker.child_pid)
    private_redis.send(signal.SIGSTOP)
    try:
        worker.send(signal.SIGTERM)
        assert worker.wait() == OVERDUE_EXIT_CODE
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, message="the child's end")
    finally:
        private_redis.send(signal.SIGCONT)
    assert "the stop takes longer than 2 s" in worker.log()
    worker.start()
    client.completed(task)


def test_vectors_without_a_redis_do_not_hold_up_a_stop(
    private_redis: RedisServer, private_roles: Roles, client: LedgerClient
) -> None:
    # A commit would be tried as long as the lease lasts. One pass of a second: a stop finds it at work.
    worker = private_roles.worker(**QUICK | {"lease_s": 60, "fake_tokens_per_s": 200})
    client.submit(["word " * 198])
    wait_until(lambda: client.overview().leases > 0, message="a claim")
    private_redis.stop()
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0, worker.log()


@pytest.mark.thorough
def test_a_replaced_child_may_load_slowly(private_roles: Roles, client: LedgerClient) -> None:
    worker = private_roles.worker(**(QUICK | {"fake_load_s": 4.5}))
    client.completed(client.submit(["before"]))
    killed = worker.kill_child()
    task = client.submit(["after"])
    worker.wait_ready()
    assert worker.child_pid != killed
    client.completed(task)
    # One load for each process that became ready: the replacement was not shot while it loaded.
    assert client.counter("model_loads") == 2


def test_a_child_that_is_killed_while_it_loads_ends_the_worker_and_says_so(private_roles: Roles) -> None:
    worker = with_patience(private_roles.worker(start=False, fake_load_s=600))
    worker.launch()
    for number in range(1, MOST_LOADS + 1):
        wait_until(partial(_loads, worker, number), message=f"load {number}")
        worker.kill_child()
    assert worker.wait() == 128 + signal.SIGKILL, worker.log()
    assert worker.log().count("was killed (signal 9, SIGKILL) while loading") == MOST_LOADS
    assert "3 times in a row; out of memory?" in worker.log()
    assert "Traceback" not in worker.log()


def _loads(worker: WorkerProcess, times: int) -> bool:
    return worker.log().count("loading sentence-transformers/all-MiniLM-L6-v2 (from the fake encoder)") >= times


def test_the_ledger_knows_who_loads_what_since_when(private_roles: Roles, client: LedgerClient) -> None:
    worker = private_roles.worker(start=False, fake_load_s=600)
    worker.launch()
    (loading,) = wait_until(lambda: client.overview().loading, message="a worker that loads")
    assert (loading.model, loading.source) == ("sentence-transformers/all-MiniLM-L6-v2", "the fake encoder")
    assert loading.since > 0
    assert client.overview().workers == ()
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
