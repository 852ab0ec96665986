"""A worker that runs out of memory outside the model, wherever that is: reading the claim, parsing it."""

import re

import psutil
import pytest

from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until

pytestmark = pytest.mark.faults

ROOM_BYTES = 4 * 2**20
OUT_OF_MEMORY = "out of memory outside of its work|claim of 1 pieces failed|did not fit into memory"


def test_a_claim_that_does_not_fit_harms_no_other_and_not_the_worker(
    private_roles: Roles, client: LedgerClient
) -> None:
    worker = private_roles.worker(**(QUICK | {"fake_tokens_per_s": 0}))
    child = psutil.Process(worker.child_pid)
    unlimited = child.rlimit(psutil.RLIMIT_AS)
    child.rlimit(psutil.RLIMIT_AS, (child.memory_info().vms + ROOM_BYTES, unlimited[1]))
    large = client.submit(["w" * (4 * ROOM_BYTES)])
    wait_until(lambda: re.search(OUT_OF_MEMORY, worker.log()), message="the memory's end")
    small = client.submit(["a small text"])
    client.completed(small)
    child.rlimit(psutil.RLIMIT_AS, unlimited)
    assert client.ended(large).state.terminal
    assert worker.child_pid == child.pid
