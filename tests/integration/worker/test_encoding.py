"""What a worker makes of texts, in how many passes, and what goes first. All tests share their workers."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tasks.item import Options
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.task import Lane, State
from tasks.worker.claim_size import CPU_TOKENS
from tests.key_leaks import fail_on_leaks
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, WorkerProcess, wait_until

MAX_TOKENS = 64
BURST, MAX_PASSES = 200, 12
PASS_S = 1.0
BAD = {"!!memory-error!!": "out_of_memory", "!!fail!!": "encoding_failed", "!!nan!!": "non_finite_vector"}


@pytest.fixture(scope="module")
def roles(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """On a Redis that was empty before the first test."""
    with redis_server.client() as connection:
        connection.flushall()
    with Roles(tmp_path_factory.mktemp("shared"), redis_server.url) as started:
        yield started
    fail_on_leaks(redis_server)


@pytest.fixture(scope="module")
def worker(roles: Roles) -> WorkerProcess:
    """It beats each second, for counts that heartbeats tell. Several streams would take a share of a claim each."""
    return roles.worker(fake_max_tokens=MAX_TOKENS, streams=1, lease_s=3)


@pytest.fixture(scope="module")
def client(redis_server: RedisServer, worker: WorkerProcess) -> Iterator[LedgerClient]:
    assert worker.running
    with redis_server.client() as connection:
        yield LedgerClient(Ledger(connection))


@pytest.fixture(scope="module")
def slow(roles: Roles, client: LedgerClient) -> LedgerClient:
    roles.worker(served_name="slow", fake_tokens_per_s=4000, streams=1)
    return LedgerClient(client.ledger, "slow")


@contextmanager
def busy(worker: WorkerProcess) -> Iterator[None]:
    """It takes nothing meanwhile, for as long as that takes on whatever machine this is."""
    child = worker.child_pid
    os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child, signal.SIGCONT)


def test_a_bad_text_is_one_failed_item_and_the_process_lives(worker: WorkerProcess, client: LedgerClient) -> None:
    child = worker.child_pid
    for trigger, code in BAD.items():
        texts = [f"good text {n} beside {code}" for n in range(20)]
        texts[7] = f"bad {trigger}"
        task = client.ended(client.submit(texts))
        assert (task.completed, task.failed) == (19, 1), trigger
        assert {index: error.code for index, error in client.result(task.id).errors.items()} == {7: code}
    assert worker.child_pid == child


def test_options_of_a_task_reach_the_model(client: LedgerClient) -> None:
    texts = ["short", "word " * 2 * MAX_TOKENS]
    cut = client.result(client.ended(client.submit(texts, options=Options(dimensions=64))).id)
    refused = client.result(client.ended(client.submit(texts, options=Options(truncate=False))).id)
    unknown = client.ended(client.submit(["short"], options=Options(prompt_name="nope")))
    assert cut.vectors.shape == (2, 64)
    assert cut.truncated == {1}
    assert {i: e.code for i, e in refused.errors.items()} == {1: "input_too_long"}
    assert (client.result(unknown.id).errors[0].code, unknown.failed) == ("unknown_prompt", unknown.total)


def test_usage_counts_the_tokens_that_went_in(client: LedgerClient) -> None:
    assert client.ended(client.submit(["one two three", "four"])).prompt_tokens == (3 + 2) + (1 + 2)


def test_a_text_costs_what_it_costs_whatever_others_have_asked_for(client: LedgerClient) -> None:
    # A caller who measures latency must not learn what others embed; passes are what takes the time.
    asked = [(lane, owner) for lane in Lane for owner in ("ann", "bob") for _ in range(2)]
    before = client.told("forward_passes")
    found = [client.completed(client.submit(["again"], owner=owner, lane=lane)).vectors for lane, owner in asked]
    for _ in range(2):
        assert client.ended(client.submit(["!!fail!!"])).state is State.FAILED, "it is tried again"
    assert client.told("forward_passes") - before == len(asked) + 2
    assert all((vectors == found[0]).all() for vectors in found)


def test_equal_texts_of_a_claim_are_encoded_once(worker: WorkerProcess, client: LedgerClient) -> None:
    tokens = client.told("padded_tokens")
    with busy(worker):
        ids = [client.submit(["the very same text"]) for _ in range(50)]
    vectors = [client.completed(task_id).vectors for task_id in ids]
    assert all((vector == vectors[0]).all() for vector in vectors)
    assert client.told("padded_tokens") - tokens == len(["[CLS]", "the", "very", "same", "text", "[SEP]"])


def test_a_burst_of_single_texts_becomes_a_few_forward_passes(worker: WorkerProcess, client: LedgerClient) -> None:
    before = client.told("forward_passes")
    with busy(worker):
        texts = [f"text {n} has about ten words like many search queries" for n in range(BURST)]
        tasks = [client.submit([text]) for text in texts]
    for task in tasks:
        client.completed(task)
    assert client.told("forward_passes") - before <= MAX_PASSES


def test_a_trickle_pays_the_bell_once_not_per_query(roles: Roles, client: LedgerClient) -> None:
    api = roles.api()
    api.wait_ready()

    def bells() -> float:
        lines = http.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("embedq_bells_total"))

    with api.client() as http:
        before = bells()
        for n in range(20):
            http.post("/v1/embeddings", json={"input": f"query {n}", "model": client.model}).raise_for_status()
        # One wakes the idle worker; a watchdog may ring for a query it happens to see between submit and claim.
        assert bells() - before <= 3


def at_work(client: LedgerClient, name: str, lane: Lane = Lane.ONLINE, texts: int = 80) -> str:
    """A task of one piece, so one claim and one commit: whatever is served before that commit was served in between."""
    passages = [f"{name} {n} " + "word " * 100 for n in range(texts)]
    task = client.submit(passages, lane=lane, piece_items=texts, piece_cost=10**9)
    wait_until(lambda: client.task(task).state is State.IN_PROGRESS, message=f"the claim of {name}")
    return task


def test_bulk_work_lets_an_online_query_through_between_two_micro_batches(slow: LedgerClient) -> None:
    tasks = [at_work(slow, "bulk work", Lane.BULK), at_work(slow, "a list", texts=40)]
    slow.completed(slow.submit(["a query"]))
    assert [slow.task(task).completed for task in tasks] == [0, 0]
    slow.completed(tasks[1])
    assert slow.task(tasks[0]).completed == 0, "the list passes bulk work too"
    slow.completed(tasks[0])
    assert slow.counter("lost_leases") == 0


def test_a_list_lets_a_query_through_between_two_micro_batches(slow: LedgerClient) -> None:
    task = at_work(slow, "a list")
    other_list = slow.submit([f"{n} " + "word " * 200 for n in range(8)], piece_items=8)
    slow.completed(slow.submit(["a query"]))
    assert slow.task(task).completed == 0
    assert slow.task(other_list).state is State.QUEUED, "it waits for the end of the other one"
    slow.completed(other_list)
    began, ended = slow.task(other_list).started_ms, slow.task(task).finished_ms
    assert (began or 0) >= (ended or 10**15), "not beside the query"


def test_several_workers_share_the_work(roles: Roles, client: LedgerClient) -> None:
    client = LedgerClient(client.ledger, "two")
    for _ in range(2):
        roles.worker(served_name="two", fake_tokens_per_s=20_000, lease_s=10)
    client.completed(client.submit([f"{n} " + "word " * 50 for n in range(1000)], lane=Lane.BULK))
    wait_until(lambda: [w.items > 0 for w in client.overview().workers] == [True] * 2, message="both have encoded some")
    assert client.counter("committed_items") == 1000


def test_a_lease_outlasts_the_slowest_pass(roles: Roles, client: LedgerClient) -> None:
    speed = CPU_TOKENS / PASS_S
    roles.worker(served_name="slowest", fake_tokens_per_s=speed, fake_max_tokens=CPU_TOKENS, lease_s=PASS_S / 4)
    client = LedgerClient(client.ledger, "slowest")
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
