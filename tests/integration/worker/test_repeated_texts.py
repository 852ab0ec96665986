"""What a worker does with texts it has seen: no forward pass, and the same vectors as without a cache."""

from typing import Any

import numpy as np
import pytest

from stack.testing import Roles, WorkerProcess, wait_until
from tasks.item import Options
from tasks.ledger import Lane, State
from tasks.records.purge import close_account
from tests.ledger_client import LedgerClient

TEXT = "a query that is asked again and again"
WAYS = (
    Options(),
    Options(prompt_name="query"),
    Options(prompt_name="document"),
    Options(dimensions=5),
    Options(normalize=False),
    Options(prompt_name="query", dimensions=7, normalize=False, truncate=False),
)


def passes(client: LedgerClient) -> int:
    return client.counter("forward_passes")


@pytest.fixture
def worker(roles: Roles, client: LedgerClient) -> WorkerProcess:
    started = roles.worker(heartbeat_s=0.1, fake_max_tokens=12)
    wait_until(lambda: client.overview().workers, message="the first beat")
    return started


def test_repeated_queries_cost_no_forward_pass_and_bulk_work_fills_no_cache(
    worker: WorkerProcess, client: LedgerClient
) -> None:
    first = client.completed(client.submit([TEXT]))
    before = passes(client)
    again = [client.completed(client.submit([TEXT])) for _ in range(3)]
    assert passes(client) == before
    assert all(np.array_equal(result.vectors, first.vectors) for result in again)
    assert {result.task.prompt_tokens for result in again} == {first.task.prompt_tokens} == {10}

    client.completed(client.submit(["new to everybody"], lane=Lane.BULK))
    before = passes(client)
    client.completed(client.submit(["new to everybody"]))
    assert passes(client) == before + 1
    client.completed(client.submit(["new to everybody"], lane=Lane.BULK))
    assert passes(client) == before + 1

    before = passes(client)
    for _ in range(2):
        assert client.ended(client.submit(["!!fail!!"])).state is State.FAILED
    assert passes(client) == before + 2, "a text that failed is tried again"


def test_each_way_to_ask_gets_what_a_worker_without_a_cache_gives(roles: Roles, client: LedgerClient) -> None:
    texts = [TEXT, "another", "one that is longer than the twelve tokens which this model reads at most"]
    found = []
    for cache_bytes in (0, 2**20):
        worker = roles.worker(cache_bytes=cache_bytes, fake_max_tokens=12)
        for _ in range(2):
            ids = [client.submit(texts, options=options) for options in WAYS]
            found.append([client.result(client.ended(task_id).id) for task_id in ids])
        worker.stop()
    plain = found[0]
    for results in found[1:]:
        for result, expected in zip(results, plain, strict=True):
            np.testing.assert_array_equal(result.vectors, expected.vectors)
            assert result.errors == expected.errors
            assert result.truncated == expected.truncated
            assert result.task.prompt_tokens == expected.task.prompt_tokens
    assert plain[0].truncated == {2}
    assert plain[-1].errors[2].code == "input_too_long"


def test_a_text_costs_what_it_costs_whatever_others_have_asked_for(worker: WorkerProcess, client: LedgerClient) -> None:
    # A caller who measures latency must not learn what others embed; passes are what takes the time.
    for lane in Lane:
        for owner in ("ann", "bob"):
            before = passes(client)
            client.completed(client.submit([TEXT], owner=owner, lane=lane))
            client.completed(client.submit([TEXT], owner=owner, lane=lane))
            assert passes(client) == before + (1 if lane is Lane.ONLINE else 0), (lane, owner)
    client.completed(client.submit([TEXT], owner="eve", lane=Lane.BULK))
    assert passes(client) == before + 1

    # A key that is purged is forgotten, and no other.
    wait_until(lambda: client.overview().workers[0].items == 9, message="a beat after the work")
    full = client.overview().workers[0].cache_bytes
    client.ledger.run(close_account("ann"))
    wait_until(lambda: 0 < client.overview().workers[0].cache_bytes <= full / 2, message="ann to be forgotten")
    before = passes(client)
    client.completed(client.submit([TEXT], owner="bob"))
    assert passes(client) == before
    client.completed(client.submit([TEXT], owner="ann", lane=Lane.BULK))
    assert passes(client) == before + 1


@pytest.mark.parametrize("off", [{"cache_bytes": 0}, {"cache_sharing": "off"}])
def test_without_a_cache_each_query_costs_a_pass(roles: Roles, client: LedgerClient, off: dict[str, Any]) -> None:
    roles.worker(**off)
    client.completed(client.submit([TEXT]))
    before = passes(client)
    client.completed(client.submit([TEXT]))
    assert passes(client) == before + 1


def test_repeated_texts_do_not_make_a_worker_look_fast(roles: Roles, client: LedgerClient) -> None:
    roles.worker(fake_tokens_per_s=20_000, heartbeat_s=0.1, streams=1)
    texts = [f"{number} " + "word " * 60 for number in range(60)]
    items = 0
    for _ in range(6):
        client.completed(client.submit(texts, unit_items=60, unit_cost=10**9))
        items += len(texts)
    wait_until(lambda: client.overview().workers[0].items >= items, message="a beat after the work")
    (entry,) = client.overview().workers
    assert entry.cache_hits == 5 * len(texts)
    assert entry.rate < 100_000


def test_the_cache_is_seen_in_the_metrics(roles: Roles, client: LedgerClient) -> None:
    api, _ = roles.api(), roles.worker(heartbeat_s=0.1)
    api.wait_ready()
    with api.client() as http:
        for _ in range(3):
            http.post("/v1/embeddings", json={"input": TEXT, "normalize": False}).raise_for_status()
            http.post("/v1/embeddings", json={"input": TEXT, "dimensions": 3}).raise_for_status()

        def sample(name: str) -> float:
            found = [line for line in http.get("/metrics").text.splitlines() if line.startswith(name)]
            return float(found[0].rsplit(" ", 1)[1]) if found else 0

        # Within a minute the same request is answered by the same task: only two came to the worker.
        wait_until(lambda: sample("embedq_worker_cache_hits_total") == 1, message="the hit")
        assert sample("embedq_worker_cache_misses_total") == 1
        assert sample("embedq_worker_cache_bytes") > 4 * 384


def test_the_cache_stays_within_its_bytes(roles: Roles, client: LedgerClient) -> None:
    limit = 50_000
    roles.worker(cache_bytes=limit, heartbeat_s=0.1, cache_sharing="shared")
    client.completed(client.submit([f"text {number}" for number in range(500)]))
    client.completed(client.submit([TEXT], owner="ann"))
    before = passes(client)
    client.completed(client.submit([TEXT], owner="bob"))
    assert passes(client) == before, "a shared cache has what others asked for"
    wait_until(lambda: client.overview().workers[0].items == 502, message="a beat after the work")
    (entry,) = client.overview().workers
    assert limit - 4000 < entry.cache_bytes <= limit
