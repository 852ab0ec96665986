"""A model that takes longer to load than Celery's default patience of four seconds."""

import signal
from functools import partial

import pytest

from tasks.worker.process.parent import MOST_LOADS
from tests.faults.conftest import QUICK, with_patience
from tests.ledger_client import LedgerClient
from tests.processes import Roles, WorkerProcess, wait_until

pytestmark = pytest.mark.faults


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
