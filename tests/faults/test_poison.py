"""Texts that kill, hang or break the worker which encodes them: they fail alone, their neighbours complete."""

import pytest

from tasks.ledger.task import State
from tests.faults.conftest import QUICK, with_patience
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until
from tests.thorough import some

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("trigger", some(["!!kill!!", "!!hang!!", "!!break!!"], "!!kill!!"))
def test_neighbours_of_a_poison_text_complete(private_roles: Roles, client: LedgerClient, trigger: str) -> None:
    settings = QUICK | ({"lease_s": 0.5} if trigger == "!!hang!!" else {})
    texts = [f"good text {n}" for n in range(12)]
    texts[5] = f"poison {trigger}"
    poisoned = client.submit(texts)
    neighbours = [client.submit([f"neighbour {n}"]) for n in range(12)]
    worker = with_patience(private_roles.worker(start=False, **settings), work_s=2)
    worker.launch()
    task = client.ended(poisoned)
    result = client.result(poisoned)
    print(f"{trigger}: {task.completed} completed, {task.failed} failed, lost {client.counter('lost_leases')} leases")  # noqa: T201 - counts
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 11, 1)
    assert {index: error.code for index, error in result.errors.items()} == {5: "worker_lost"}
    for neighbour in neighbours:
        client.completed(neighbour)

    # Once in company, perhaps of another stream's claim, once in a part of its piece, then three times alone. Whoever
    # notices that its device is lost gives its leases back, and says so after that.
    def losses() -> int:
        if trigger == "!!break!!":
            return worker.log().count("this process cannot go on")
        return client.counter("lost_leases")

    wait_until(lambda: losses() >= 4, message="four losses")
    assert losses() <= 6
    assert client.counter("committed_items") == 11 + len(neighbours)
    wait_until(lambda: client.overview().leases == 0, message="no lease left")
