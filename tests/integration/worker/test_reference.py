"""A revision stands for vectors: who joins with others is refused."""

import numpy as np
import pytest
import redis

from tasks.ledger.overview import overview
from tasks.ledger.read import reference
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, Roles, WorkerProcess, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

pytestmark = pytest.mark.model

DIMENSION = 384


@pytest.fixture
def client(client: LedgerClient, worker: WorkerProcess) -> LedgerClient:
    """Of the model that the worker serves."""
    (served,) = client.ledger.run(overview())
    assert worker.running
    return LedgerClient(client.ledger, served)


@pytest.fixture
def worker(roles: Roles) -> WorkerProcess:
    return roles.worker(compute="torch", threads=1)


def revision_of(client: LedgerClient) -> str:
    entry = client.overview().model
    assert entry is not None
    return entry.revision


def stored(client: LedgerClient) -> np.ndarray:
    found = client.ledger.run(reference(revision_of(client), b""))
    return np.frombuffer(found, dtype="<f4").reshape(8, DIMENSION)


def store(client: LedgerClient, revision: str, vectors: np.ndarray) -> None:
    client.ledger.client.hset("eq:references", revision, vectors.astype("<f4").tobytes())


def test_other_vectors_under_a_known_revision_are_refused(
    roles: Roles, worker: WorkerProcess, client: LedgerClient
) -> None:
    vectors, revision = stored(client), revision_of(client)
    worker.stop()
    assert np.isfinite(vectors).all()
    assert np.linalg.matrix_rank(vectors) == 8
    others = {"cosine ": np.roll(vectors, 1, axis=0), "they have 256 components, and these 384": vectors[:, :256]}
    for told, other in others.items():
        store(client, revision, other)
        late = roles.worker(start=False, compute="torch", threads=1)
        late.launch()
        assert late.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
        assert all(part in late.log() for part in ("EMBEDQ_MODEL", revision, told, "restore them"))
        assert "Traceback" not in late.log()
        assert client.overview().workers == ()


def test_a_redis_that_was_emptied_knows_the_vectors_again(
    roles: Roles, worker: WorkerProcess, client: LedgerClient, redis_client: "redis.Redis"
) -> None:
    vectors, revision = stored(client), revision_of(client)
    redis_client.flushdb()
    wait_until(lambda: client.ledger.client.hexists("eq:references", revision), message="the next heartbeat")
    store(client, revision, -vectors)
    assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
    assert "cosine -1.0" in worker.log()


@pytest.mark.thorough
def test_workers_of_one_revision_serve_together(roles: Roles, client: LedgerClient) -> None:
    vectors = stored(client)
    # As a worker in float16 on another machine may have stored it: nearly the same.
    nearly = vectors + 1e-3 * np.abs(vectors).max() * np.sin(np.arange(vectors.size)).reshape(vectors.shape)
    store(client, revision_of(client), nearly)
    roles.worker(compute="torch", threads=1)
    wait_until(lambda: len(client.overview().workers) == 2)
    assert client.ledger.client.hlen("eq:references") == 1
    client.completed(client.submit(["a text"]))
