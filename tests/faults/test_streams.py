"""A worker works on several claims at a time, but on a suspect alone."""

import pytest

from tests.faults.conftest import QUICK
from tests.harness import Roles, wait_until
from tests.ledger_client import LedgerClient

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

STREAMS = 2


def test_texts_run_side_by_side_and_after_a_death_one_by_one(private_roles: Roles, client: LedgerClient) -> None:
    worker = private_roles.worker(**QUICK | {"streams": STREAMS, "fake_tokens_per_s": 200, "unit_s": 0.1})
    tasks = [client.submit([f"{n} " + "word " * 197]) for n in range(STREAMS)]  # a second each
    wait_until(lambda: client.overview().leases == STREAMS, message="a claim of every stream")
    worker.kill_child()
    seen = [0]

    def ended() -> bool:
        if client.counter("lost_leases"):
            seen.append(client.overview().leases)
        return all(client.task(task_id).state.terminal for task_id in tasks)

    wait_until(ended, timeout_s=60, message="the end of both")
    for task_id in tasks:
        client.completed(task_id)
    assert max(seen) == 1
