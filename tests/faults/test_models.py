"""Another model under the same served name: nothing is lost, nothing is mixed, nobody gets a 500."""

import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from tasks.ledger.task import Lane, State
from tests.bulk import Bulk, line
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

pytestmark = pytest.mark.faults

BEFORE, AFTER = 8, 16
"""Dimensions of the two models: who made a vector shows in its length."""
ROWS = 600
SETTINGS: dict[str, Any] = QUICK | {"fake_tokens_per_s": 1_000, "streams": 1}


def lengths(items: Sequence[dict[str, Any]]) -> set[int]:
    return {len(item["embedding"]) for item in items}


@pytest.mark.thorough
def test_a_model_exchanged_under_load(private_roles: Roles, client: LedgerClient) -> None:
    with Bulk(private_roles, fake_dimension=BEFORE, **SETTINGS) as bulk, bulk.api.client() as http:
        tasks = [  # more than one claim takes
            client.submit([f"{n} of {task}" for n in range(1_000)], lane=Lane.BULK, piece_items=8, piece_cost=40)
            for task in range(3)
        ]
        batch_id = bulk.create([line(f"{n}", f"row {n}") for n in range(ROWS)])
        begun: list[str] = []

        def all_have_begun() -> bool:
            found = bulk.client.batches.retrieve(batch_id).request_counts
            begun[:] = [task for task in tasks if client.task(task).completed]
            return bool(found and found.completed) and len(begun) == len(tasks)

        wait_until(all_have_begun, message="vectors of the first model in all of them")
        bulk.model.stop()
        half = [task for task in tasks if not client.task(task).state.terminal]
        fresh = client.submit(["nobody has begun this"], lane=Lane.BULK)
        assert half, "the exchange hit nothing"
        private_roles.worker(**bulk.settings | {"fake_dimension": AFTER})
        batch = bulk.ended(batch_id)
        assert (batch.status, batch.error_file_id) == ("completed", None)
        done = bulk.lines(batch.output_file_id)
        assert [each["custom_id"] for each in done] == [f"{n}" for n in range(ROWS)]
        assert {length for each in done for length in lengths(each["response"]["body"]["data"])} == {AFTER}
        for task in half:
            client.ended(task)
            data = http.get(f"/v1/tasks/{task}/result").raise_for_status().json()["data"]
            failed = [each for each in data if each["object"] == "error"]
            assert lengths([each for each in data if each["object"] == "embedding"]) == {BEFORE}
            assert {each["error"]["code"] for each in failed} == {"model_changed"}
        client.ended(fresh)
        assert lengths(http.get(f"/v1/tasks/{fresh}/result").json()["data"]) == {AFTER}


def test_a_worker_that_was_away_when_its_model_was_exchanged_leaves(private_roles: Roles, client: LedgerClient) -> None:
    old = private_roles.worker(fake_dimension=BEFORE, **SETTINGS)
    task = client.submit([f"text {n}" for n in range(100)], piece_items=100, piece_cost=10**6)
    wait_until(lambda: client.task(task).state is State.IN_PROGRESS, message="the claim")
    child = old.child_pid
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: not client.overview().workers, message="the end of its entry")
    private_roles.worker(fake_dimension=AFTER, **SETTINGS)
    os.kill(child, signal.SIGCONT)
    assert client.completed(task).vectors.shape == (100, AFTER)

    def left() -> bool:
        client.completed(client.submit(["somebody rings"]))
        return not old.running

    wait_until(left, message="the end of the worker with the model before")
    assert old.wait() == CONFIGURATION_EXIT_CODE
    assert "EMBEDQ_SERVED_NAME" in old.log()
    assert client.overview().counters.get("failed_items", 0) == 0
