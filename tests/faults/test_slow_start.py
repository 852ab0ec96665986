"""A model that takes longer to load than Celery's default patience of four seconds."""

import pytest

from stack.testing import Roles
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient

pytestmark = pytest.mark.faults


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
