"""What goes first: queries, lists and bulk work on one slow worker. And several workers that share the work."""

import pytest

from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.task import Lane, State
from tasks.worker.claim_size import CPU_TOKENS
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until

TOKENS_PER_S = 4000
SLOW, PASS_S = "slow", 1.0


@pytest.fixture(scope="module")
def client(shared_roles: Roles, shared_client: LedgerClient) -> LedgerClient:
    shared_roles.worker(fake_tokens_per_s=TOKENS_PER_S, streams=1)
    return shared_client


def at_work(client: LedgerClient, name: str, lane: Lane = Lane.ONLINE, texts: int = 80) -> str:
    """A task of one piece, so one claim and one commit: whatever is served before that commit was served in between."""
    passages = [f"{name} {n} " + "word " * 100 for n in range(texts)]
    task = client.submit(passages, lane=lane, piece_items=texts, piece_cost=10**9)
    wait_until(lambda: client.task(task).state is State.IN_PROGRESS, message=f"the claim of {name}")
    return task


def test_bulk_work_lets_an_online_query_through_between_two_micro_batches(client: LedgerClient) -> None:
    tasks = [at_work(client, "bulk work", Lane.BULK), at_work(client, "a list", texts=40)]
    client.completed(client.submit(["a query"]))
    assert [client.task(task).completed for task in tasks] == [0, 0]
    client.completed(tasks[1])
    assert client.task(tasks[0]).completed == 0, "the list passes bulk work too"
    client.completed(tasks[0])
    assert client.counter("lost_leases") == 0


def test_a_list_lets_a_query_through_between_two_micro_batches(client: LedgerClient) -> None:
    task = at_work(client, "a list")
    other_list = client.submit([f"{n} " + "word " * 200 for n in range(8)], piece_items=8)
    client.completed(client.submit(["a query"]))
    assert client.task(task).completed == 0
    assert client.task(other_list).state is State.QUEUED, "it waits for the end of the other one"
    client.completed(other_list)
    began, ended = client.task(other_list).started_ms, client.task(task).finished_ms
    assert (began or 0) >= (ended or 10**15), "not beside the query"


def test_several_workers_share_the_work(shared_roles: Roles, shared_client: LedgerClient) -> None:
    client = LedgerClient(shared_client.ledger, "two")
    for _ in range(2):
        shared_roles.worker(served_name="two", fake_tokens_per_s=20_000, lease_s=10)
    client.completed(client.submit([f"{n} " + "word " * 50 for n in range(1000)], lane=Lane.BULK))
    wait_until(lambda: [w.items > 0 for w in client.overview().workers] == [True] * 2, message="both have encoded some")
    assert client.counter("committed_items") == 1000


def test_a_lease_outlasts_the_slowest_pass(shared_roles: Roles, shared_client: LedgerClient) -> None:
    speed = CPU_TOKENS / PASS_S
    shared_roles.worker(served_name=SLOW, fake_tokens_per_s=speed, fake_max_tokens=CPU_TOKENS, lease_s=PASS_S / 4)
    client = LedgerClient(shared_client.ledger, SLOW)
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
