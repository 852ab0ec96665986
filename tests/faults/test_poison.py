"""Texts that kill, hang or break the worker which encodes them, or do not fit into it: they fail alone."""

import re

import psutil
import pytest

from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.give_back import give_back
from tasks.ledger.task import Lane, State
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
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 11, 1)
    assert {index: error.code for index, error in client.result(poisoned).errors.items()} == {5: "worker_lost"}
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


def test_bulk_work_does_not_die_with_the_suspect_beside_it(private_roles: Roles, client: LedgerClient) -> None:
    poison = client.submit(["!!kill!!"])
    client.ledger.run(claim(client.model, ClaimRequest("dead/0", "dead/0/1", 10**9, 1, 60_000)))
    client.ledger.run(give_back(client.model, "dead/0/1", blame=True))
    bulk = client.submit([f"{n} " + "word " * 47 for n in range(200)], lane=Lane.BULK, piece_items=20)
    worker = private_roles.worker(start=False, **QUICK | {"streams": 2})
    worker.launch()
    assert client.ended(poison).state is State.FAILED
    client.completed(bulk)
    assert client.task(bulk).deaths == 0, "it was in hand when a worker died"
    assert f"worker process died (signal 9, SIGKILL) while it worked on {poison}" in worker.log()
    assert not re.search("Traceback|WorkerLostError", worker.log())


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
    client.completed(client.submit(["a small text"]))
    child.rlimit(psutil.RLIMIT_AS, unlimited)
    assert client.ended(large).state.terminal
    assert worker.child_pid == child.pid
