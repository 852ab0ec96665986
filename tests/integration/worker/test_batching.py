"""What a worker makes of bursts, trickles and bulk work: counted in forward passes and bells."""

import asyncio
import os
import signal

import httpx
import redis

from tasks.ledger.task import Lane, State
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, Roles, wait_until
from worker_config.celery_app import bell_queue

BURST = 200
MAX_PASSES = 12


def _text(number: int) -> str:
    return f"text {number} has about ten words like many search queries"


async def _post_all(base_url: str, path: str, bodies: list[dict[str, object]]) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=base_url, timeout=PATIENCE_S) as http:
        return await asyncio.gather(*(http.post(path, json=body) for body in bodies))


def test_a_burst_of_single_texts_becomes_a_few_forward_passes(roles: Roles, client: LedgerClient) -> None:
    api, worker = roles.api(), roles.worker(fake_tokens_per_s=6000)
    api.wait_ready()
    before = client.told("forward_passes")
    child = worker.child_pid
    os.kill(child, signal.SIGSTOP)  # busy, for as long as the burst takes on whatever machine this is
    try:
        answers = asyncio.run(_post_all(api.base_url, "/v1/tasks", [{"input": _text(n)} for n in range(BURST)]))
    finally:
        os.kill(child, signal.SIGCONT)
    assert {answer.status_code for answer in answers} == {202}
    for answer in answers:
        client.completed(answer.json()["id"])
    assert client.told("forward_passes") - before <= MAX_PASSES


def test_equal_texts_of_a_claim_are_encoded_once(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker(streams=1)  # several take a share each
    child, tokens = worker.child_pid, client.told("padded_tokens")
    os.kill(child, signal.SIGSTOP)
    try:
        ids = [client.submit(["the very same text"]) for _ in range(50)]
    finally:
        os.kill(child, signal.SIGCONT)
    vectors = [client.completed(task_id).vectors for task_id in ids]
    assert all((vector == vectors[0]).all() for vector in vectors)
    assert client.told("padded_tokens") - tokens == len(["[CLS]", "the", "very", "same", "text", "[SEP]"])


def test_equal_texts_do_not_make_a_worker_look_fast(roles: Roles, client: LedgerClient) -> None:
    roles.worker(fake_tokens_per_s=20_000)
    for _ in range(3):
        client.completed(client.submit(["one and the same " * 20] * 2000, piece_items=2000, piece_cost=10**9))
    (worker,) = client.overview().workers
    beaten = worker.items
    wait_until(lambda: client.overview().workers[0].items >= beaten, message="a beat after the work")
    assert client.overview().workers[0].rate < 100_000


def test_a_trickle_pays_the_bell_once_not_per_query(roles: Roles, client: LedgerClient) -> None:
    queries = 20
    api, _ = roles.api(), roles.worker()
    api.wait_ready()
    with api.client() as http:
        for n in range(queries):
            http.post("/v1/embeddings", json={"input": _text(n), "model": client.model}).raise_for_status()
        sent = _sample(http.get("/metrics").text, "embedq_bells_total")
    # One wakes the idle worker; a watchdog may ring for a query it happens to see between submit and claim.
    assert sent <= 3


def _sample(metrics: str, name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if line.startswith(name))


def test_bulk_work_lets_an_online_query_through_between_two_micro_batches(roles: Roles, client: LedgerClient) -> None:
    roles.worker(fake_tokens_per_s=4000)
    passage = "word " * 100
    # One unit, so one claim and one commit: whatever is served before that commit was served in between.
    bulk = client.submit([f"{n} {passage}" for n in range(100)], lane=Lane.BULK, piece_items=100, piece_cost=10**9)
    wait_until(lambda: client.task(bulk).state is State.IN_PROGRESS, message="the bulk claim")
    client.completed(client.submit(["an online query"]))
    assert client.task(bulk).completed == 0
    client.completed(bulk)


def test_a_list_lets_a_query_through_between_two_micro_batches(roles: Roles, client: LedgerClient) -> None:
    roles.worker(fake_tokens_per_s=4000, streams=1)
    list_of_passages = client.submit([f"{n} " + "word " * 100 for n in range(100)], piece_items=100, piece_cost=10**9)
    wait_until(lambda: client.task(list_of_passages).state is State.IN_PROGRESS, message="the claim of the list")
    other_list = client.submit([f"{n} " + "word " * 200 for n in range(8)], piece_items=8)
    client.completed(client.submit(["a query"]))
    assert client.task(list_of_passages).completed == 0
    assert client.task(other_list).state is State.QUEUED, "it waits for the end of the other one"
    client.completed(other_list)
    began, ended = client.task(other_list).started_ms, client.task(list_of_passages).finished_ms
    assert began is not None
    assert ended is not None
    assert began >= ended, "not beside the query"


def test_a_query_passes_a_list_that_passes_bulk_work(roles: Roles, client: LedgerClient) -> None:
    roles.worker(fake_tokens_per_s=4000, streams=1)

    def submitted(name: str, lane: Lane) -> str:
        texts = [f"{name} {n} " + "word " * 100 for n in range(60)]
        task = client.submit(texts, lane=lane, piece_items=60, piece_cost=10**9)
        wait_until(lambda: client.task(task).state is State.IN_PROGRESS, message=f"the claim of {name}")
        return task

    tasks = [submitted("bulk work", Lane.BULK), submitted("a list", Lane.ONLINE)]
    client.completed(client.submit(["a query"]))
    assert [client.task(task).completed for task in tasks] == [0, 0]
    client.completed(tasks[1])
    assert client.task(tasks[0]).completed == 0
    client.completed(tasks[0])
    assert client.counter("lost_leases") == 0


def test_lists_are_sorted_together(roles: Roles, client: LedgerClient) -> None:
    """Short and long texts by turns, in eight pieces of two: each of these alone would be two passes."""
    worker = roles.worker(fake_tokens_per_s=2000, streams=1)
    words = [20, 100] * 8
    child, before = worker.child_pid, client.told("forward_passes")
    os.kill(child, signal.SIGSTOP)
    try:
        task = client.submit([f"{n} " + "word " * count for n, count in enumerate(words)], piece_items=2)
    finally:
        os.kill(child, signal.SIGCONT)
    client.completed(task)
    assert client.told("forward_passes") - before <= 4


def test_several_workers_share_the_work(roles: Roles, client: LedgerClient) -> None:
    workers = [roles.worker(fake_tokens_per_s=20_000, lease_s=10) for _ in range(2)]
    task = client.submit([f"{n} " + "word " * 50 for n in range(2000)], lane=Lane.BULK)
    client.completed(task)

    def everyone_worked() -> bool:
        return sorted(w.items > 0 for w in client.overview().workers) == [True] * len(workers)

    wait_until(everyone_worked, message="items encoded by both workers")
    assert client.counter("committed_items") == 2000


def test_first_requests_load_the_model_once(roles: Roles, client: LedgerClient) -> None:
    api = roles.api()
    worker = roles.worker(start=False, fake_load_s=1)
    worker.launch()
    bodies: list[dict[str, object]] = [{"input": _text(n), "model": client.model} for n in range(100)]
    answers = asyncio.run(_post_all(api.base_url, "/v1/embeddings", bodies))
    assert [answer.status_code for answer in answers] == [200] * len(bodies)
    assert client.counter("model_loads") == 1


def test_messages_do_not_pile_up_for_several_streams(
    roles: Roles, client: LedgerClient, redis_client: redis.Redis
) -> None:
    roles.worker(streams=4, fake_tokens_per_s=20_000)
    for number in range(3):
        client.completed(client.submit([f"{number} {n} " + "word " * 50 for n in range(700)], lane=Lane.BULK))
    assert redis_client.llen(bell_queue(client.model)) <= 1
