"""What a worker makes of texts and of rows in the storage: one worker and one web tier for all tests."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tasks.item import Options, Vector
from tasks.ledger.read import read_result
from tasks.ledger.task import Lane, State
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import VectorsReference
from tests.integration.worker.batch_rows import inline, outcomes, submit_rows
from tests.ledger_client import LedgerClient
from tests.processes import ApiProcess, Roles, WorkerProcess

MAX_TOKENS = 64
BURST, MAX_PASSES = 200, 12
BAD = {"!!memory-error!!": "out_of_memory", "!!fail!!": "encoding_failed", "!!nan!!": "non_finite_vector"}


@pytest.fixture(scope="module")
def worker(shared_roles: Roles) -> WorkerProcess:
    """It beats each second, for counts that heartbeats tell. Several streams would take a share of a claim each."""
    return shared_roles.worker(fake_max_tokens=MAX_TOKENS, streams=1, lease_s=3)


@pytest.fixture(scope="module")
def api(shared_roles: Roles, worker: WorkerProcess) -> ApiProcess:
    started = shared_roles.api()
    started.wait_ready()
    return started


@pytest.fixture
def client(shared_client: LedgerClient, worker: WorkerProcess) -> LedgerClient:
    assert worker.running
    return shared_client


@pytest.fixture(scope="module")
def storage(shared_roles: Roles) -> Storage:
    return Storage.open(str(shared_roles.folder / ".embedq" / "storage"))


@contextmanager
def busy(worker: WorkerProcess) -> Iterator[None]:
    """It takes nothing meanwhile, for as long as that takes on whatever machine this is."""
    child = worker.child_pid
    os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child, signal.SIGCONT)


def vector_of(row: Vector) -> npt.NDArray[np.float32]:
    assert row.vector is not None, row.error
    return row.vector


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
    assert client.result(unknown.id).errors[0].code == "unknown_prompt"
    assert unknown.failed == unknown.total


def test_usage_counts_the_tokens_that_went_in(client: LedgerClient) -> None:
    task = client.ended(client.submit(["one two three", "four"]))
    assert task.prompt_tokens == (3 + 2) + (1 + 2)


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


def test_lists_are_sorted_together(worker: WorkerProcess, client: LedgerClient) -> None:
    """Short and long texts by turns, in eight pieces of two: each of these alone would be two passes."""
    before = client.told("forward_passes")
    with busy(worker):
        task = client.submit([f"{n} " + "word " * count for n, count in enumerate([12, 60] * 8)], piece_items=2)
    client.completed(task)
    assert client.told("forward_passes") - before <= 4


def test_a_trickle_pays_the_bell_once_not_per_query(api: ApiProcess, client: LedgerClient) -> None:
    def bells() -> float:
        lines = http.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("embedq_bells_total"))

    with api.client() as http:
        before = bells()
        for n in range(20):
            http.post("/v1/embeddings", json={"input": f"query {n}", "model": client.model}).raise_for_status()
        # One wakes the idle worker; a watchdog may ring for a query it happens to see between submit and claim.
        assert bells() - before <= 3


# ---- rows in the storage


def test_rows_get_the_vectors_of_their_texts(client: LedgerClient, storage: Storage) -> None:
    texts: list[str | tuple[str, dict[str, Any]]] = [
        "one text",
        ("short", {"dimensions": 8}),
        ("raw", {"normalize": False}),
        ("asked", {"input_type": "query"}),
        ("asked", {"prompt_name": "query", "input_type": "document"}),
        "word " * 2 * MAX_TOKENS,
    ]
    task_id = submit_rows(client, storage, texts)
    assert client.ended(task_id).state is State.COMPLETED
    rows = outcomes(client, storage, task_id)
    asked = [Options(), Options(dimensions=8), Options(normalize=False), *[Options(prompt_name="query")] * 2, Options()]
    assert sorted(rows) == list(range(len(texts)))
    for number, (text, options) in enumerate(zip(texts, asked, strict=True)):
        expected = inline(client, [text if isinstance(text, str) else text[0]], options)
        assert np.array_equal(vector_of(rows[number]), expected[0])
    assert [number for number, row in rows.items() if row.truncated] == [5]
    assert client.task(task_id).prompt_tokens == sum(row.tokens for row in rows.values())


def test_a_claim_of_many_megabytes_is_done_in_portions(
    worker: WorkerProcess, client: LedgerClient, storage: Storage
) -> None:
    texts = [f"number {n} " + "word " * 450_000 for n in range(12)]
    claims = client.told("claims")
    with busy(worker):
        task_id = submit_rows(client, storage, texts)
    assert client.ended(task_id).state is State.COMPLETED
    assert client.told("claims") - claims == 1
    committed = client.ledger.run(read_result(task_id))
    assert committed is not None
    assert len({VectorsReference.from_json(piece.data).vectors for piece in committed.pieces}) == 3


def test_a_row_fails_alone(client: LedgerClient, storage: Storage) -> None:
    texts: list[str | tuple[str, dict[str, Any]]] = [
        "good",
        ("word " * 2 * MAX_TOKENS, {"truncate": False}),
        "!!fail!!",
        ("good", {"dimensions": 5000}),
        ("good", {"no such option": 1}),
        "good",
    ]
    task = client.ended(submit_rows(client, storage, texts))
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 2, 4)
    seen = {n: row.error.code for n, row in outcomes(client, storage, task.id).items() if row.error}
    assert seen == {1: "input_too_long", 2: "encoding_failed", 3: "invalid_dimensions", 4: "invalid_request"}


def test_rows_that_were_deleted_fail(client: LedgerClient, storage: Storage) -> None:
    task_id = submit_rows(client, storage, ["a text"], written=storage.delete)
    assert client.ended(task_id).failed == 1
    row = outcomes(client, storage, task_id)[0]
    assert row.error is not None
    assert row.error.code == "not_stored"
    assert "no longer in the storage" in row.error.message
