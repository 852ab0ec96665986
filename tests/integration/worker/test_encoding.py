"""What a worker makes of texts: one worker and one web tier for all tests."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tasks.item import Options
from tasks.ledger.task import Lane, State
from tests.ledger_client import LedgerClient
from tests.processes import Roles, WorkerProcess

MAX_TOKENS = 64
BURST, MAX_PASSES = 200, 12
BAD = {"!!memory-error!!": "out_of_memory", "!!fail!!": "encoding_failed", "!!nan!!": "non_finite_vector"}


@pytest.fixture(scope="module")
def worker(shared_roles: Roles) -> WorkerProcess:
    """It beats each second, for counts that heartbeats tell. Several streams would take a share of a claim each."""
    return shared_roles.worker(fake_max_tokens=MAX_TOKENS, streams=1, lease_s=3)


@pytest.fixture
def client(shared_client: LedgerClient, worker: WorkerProcess) -> LedgerClient:
    assert worker.running
    return shared_client


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
    assert (cut.vectors.shape, cut.truncated) == ((2, 64), {1})
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


def test_a_trickle_pays_the_bell_once_not_per_query(shared_roles: Roles, client: LedgerClient) -> None:
    api = shared_roles.api()
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
