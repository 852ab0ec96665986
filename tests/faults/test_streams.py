"""A worker works on several claims at a time, but on texts whose worker died alone, while nothing else runs in it."""

import pytest

from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.give_back import give_back
from tasks.ledger.task import Lane, State
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.processes import Roles

pytestmark = pytest.mark.faults

STREAMS = 2


def test_bulk_work_does_not_die_with_the_suspect_beside_it(private_roles: Roles, client: LedgerClient) -> None:
    poison = client.submit(["!!kill!!"])
    client.ledger.run(claim(client.model, ClaimRequest("dead/0", "dead/0/1", 10**9, 1, 60_000)))
    client.ledger.run(give_back(client.model, "dead/0/1", blame=True))
    bulk = client.submit([f"{n} " + "word " * 47 for n in range(200)], lane=Lane.BULK, piece_items=20)
    worker = private_roles.worker(start=False, **QUICK | {"streams": STREAMS})
    worker.launch()
    assert client.ended(poison).state is State.FAILED
    client.completed(bulk)
    assert client.task(bulk).deaths == 0, "it was in hand when a worker died"
    assert f"worker process died (signal 9, SIGKILL) while it worked on {poison}" in worker.log()
    assert "Traceback" not in worker.log()
    assert "WorkerLostError" not in worker.log()
