"""Processes and servers that stand still instead of dying, models that take long to load or are exchanged meanwhile."""

import os
import signal
from functools import partial
from typing import Any

import psutil
import pytest

from tasks.ledger.cancel import cancel
from tasks.ledger.task import Lane, State
from tasks.worker.process.parent import MOST_LOADS
from tests.faults.conftest import QUICK, with_patience
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, WorkerProcess, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE, OVERDUE_EXIT_CODE

pytestmark = pytest.mark.faults

BEFORE, AFTER = 8, 16
"""Dimensions of the two models: who made a vector shows in its length."""
ONE_STREAM: dict[str, Any] = QUICK | {"fake_tokens_per_s": 1_000, "streams": 1}


def _await_end(child: psutil.Process) -> None:
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, message="the child's end")


def test_whoever_hangs_is_ended_and_a_stop_does_not_wait_for_redis(
    private_redis: RedisServer, private_roles: Roles, client: LedgerClient
) -> None:
    worker = with_patience(private_roles.worker(start=False, **QUICK), parent_s=2, child_s=2, stop_s=2).start()
    child = psutil.Process(worker.child_pid)
    frozen = client.submit(["!!freeze!!"])
    wait_until(lambda: client.overview().leases > 0, message="a claim")
    client.ledger.run(cancel(client.model, frozen))  # or its successors would freeze too
    _await_end(child)
    assert "replacing the child" in worker.log()
    client.completed(client.submit(["it goes on"]))

    child = psutil.Process(worker.child_pid)
    worker.send(signal.SIGSTOP)
    assert worker.wait() == -signal.SIGKILL
    _await_end(child)
    assert "the parent has hung" in worker.log()
    worker.start()
    client.completed(client.submit(["it goes on"]))

    task = client.submit([f"{n} " + "word " * 50 for n in range(100)], lane=Lane.BULK)
    wait_until(lambda: client.overview().leases > 0, message="a claim")
    child = psutil.Process(worker.child_pid)
    private_redis.send(signal.SIGSTOP)
    try:
        worker.send(signal.SIGTERM)
        assert worker.wait() == OVERDUE_EXIT_CODE
        _await_end(child)
    finally:
        private_redis.send(signal.SIGCONT)
    assert "the stop takes longer than 2 s" in worker.log()
    worker.start()
    client.completed(task)


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


def test_who_loads_is_told_and_a_child_that_is_killed_meanwhile_ends_the_worker(
    private_roles: Roles, client: LedgerClient
) -> None:
    worker = with_patience(private_roles.worker(start=False, fake_load_s=600))
    worker.launch()
    (loading,) = wait_until(lambda: client.overview().loading, message="a worker that loads")
    assert (loading.model, loading.source) == ("sentence-transformers/all-MiniLM-L6-v2", "the fake encoder")
    assert loading.since > 0
    assert client.overview().workers == ()
    for number in range(1, MOST_LOADS + 1):
        wait_until(partial(_loads, worker, number), message=f"load {number}")
        worker.kill_child()
    assert worker.wait() == 128 + signal.SIGKILL, worker.log()
    assert worker.log().count("was killed (signal 9, SIGKILL) while loading") == MOST_LOADS
    assert "3 times in a row; out of memory?" in worker.log()
    assert "Traceback" not in worker.log()


def _loads(worker: WorkerProcess, times: int) -> bool:
    return worker.log().count("loading sentence-transformers/all-MiniLM-L6-v2 (from the fake encoder)") >= times


def test_a_model_is_exchanged_under_load_by_a_worker_that_the_one_before_does_not_notice(
    private_roles: Roles, client: LedgerClient
) -> None:
    old = private_roles.worker(fake_dimension=BEFORE, **ONE_STREAM)
    half = client.submit([f"{n} of many" for n in range(5_000)], lane=Lane.BULK, piece_items=8, piece_cost=40)
    wait_until(lambda: client.task(half).completed, message="vectors of the first model")
    whole = client.submit([f"text {n}" for n in range(100)], piece_items=100, piece_cost=10**6)
    wait_until(lambda: client.task(whole).state is State.IN_PROGRESS, message="the claim")
    child = old.child_pid
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: not client.overview().workers, message="the end of its entry")
    fresh = client.submit(["nobody has begun this"], lane=Lane.BULK)
    private_roles.worker(fake_dimension=AFTER, **ONE_STREAM)
    os.kill(child, signal.SIGCONT)
    for task in (whole, fresh):
        assert client.completed(task).vectors.shape[1] == AFTER
    assert client.ended(half).failed, "the exchange hit nothing"
    result = client.result(half)
    assert result.vectors.shape[1] == BEFORE
    assert {error.code for error in result.errors.values()} == {"model_changed"}

    def left() -> bool:
        client.completed(client.submit(["somebody rings"]))
        return not old.running

    wait_until(left, message="the end of the worker with the model before")
    assert old.wait() == CONFIGURATION_EXIT_CODE
    assert "EMBEDQ_SERVED_NAME" in old.log()
