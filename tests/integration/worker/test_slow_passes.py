"""Leases on a machine where one pass takes longer than the configured lease."""

from typing import Any

from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.task import Lane
from tasks.worker.claim_size import CPU_TOKENS
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until

PASS_S = 1.0


def test_a_lease_outlasts_the_slowest_pass(roles: Roles, client: LedgerClient) -> None:
    settings: dict[str, Any] = {"lease_s": PASS_S / 4}
    roles.worker(fake_tokens_per_s=CPU_TOKENS / PASS_S, fake_max_tokens=CPU_TOKENS, **settings)
    task = client.submit([f"{n} " + "word " * CPU_TOKENS for n in range(2)], lane=Lane.BULK)

    def another_worker_finds_something() -> bool:
        asked = ClaimRequest("other", "other/1", 10**9, 10, 10_000, stamp=client.stamp)
        taken = client.ledger.run(claim(client.model, asked))
        assert not taken.pieces, "the lease of a pass ran out while it moved"
        return client.task(task).state.terminal

    wait_until(lambda: client.overview().leases > 0, message="the claim")
    wait_until(another_worker_finds_something, message="the end of the task")
    client.completed(task)
    assert client.counter("lost_leases") == 0
