"""Another model under the same served name: nothing is lost, nothing is mixed, the worker before it leaves."""

import os
import signal
from typing import Any

import pytest

from tasks.ledger.task import Lane, State
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

pytestmark = pytest.mark.faults

BEFORE, AFTER = 8, 16
"""Dimensions of the two models: who made a vector shows in its length."""
SETTINGS: dict[str, Any] = QUICK | {"fake_tokens_per_s": 1_000, "streams": 1}


def test_a_model_is_exchanged_under_load_by_a_worker_that_the_one_before_does_not_notice(
    private_roles: Roles, client: LedgerClient
) -> None:
    old = private_roles.worker(fake_dimension=BEFORE, **SETTINGS)
    half = client.submit([f"{n} of many" for n in range(5_000)], lane=Lane.BULK, piece_items=8, piece_cost=40)
    wait_until(lambda: client.task(half).completed, message="vectors of the first model")
    whole = client.submit([f"text {n}" for n in range(100)], piece_items=100, piece_cost=10**6)
    wait_until(lambda: client.task(whole).state is State.IN_PROGRESS, message="the claim")
    child = old.child_pid
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: not client.overview().workers, message="the end of its entry")
    fresh = client.submit(["nobody has begun this"], lane=Lane.BULK)
    private_roles.worker(fake_dimension=AFTER, **SETTINGS)
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
