"""A worker that runs out of memory outside the model."""

import psutil
import pytest

from tests.faults.conftest import QUICK
from tests.harness import Roles, wait_until
from tests.ledger_client import LedgerClient

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

ROOM_BYTES = 4 * 2**20
TEXT = "w" * (4 * ROOM_BYTES)


def test_a_claim_that_does_not_fit_ends_the_slice_and_nothing_else(private_roles: Roles, client: LedgerClient) -> None:
    worker = private_roles.worker(**(QUICK | {"fake_tokens_per_s": 0, "streams": 1}))
    child = psutil.Process(worker.child_pid)
    unlimited = child.rlimit(psutil.RLIMIT_AS)
    child.rlimit(psutil.RLIMIT_AS, (child.memory_info().vms + ROOM_BYTES, unlimited[1]))
    task = client.submit([TEXT])
    wait_until(lambda: "out of memory outside the model" in worker.log(), message="the slice's end")
    child.rlimit(psutil.RLIMIT_AS, unlimited)
    client.completed(task)
    assert worker.child_pid == child.pid
    assert client.counter("lost_leases") > 0
