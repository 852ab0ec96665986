"""Token numbers over HTTP: the first ones, which have the vocabulary read, and those after them."""

import concurrent.futures
import threading
from collections.abc import Callable

import httpx
import pytest
import tiktoken

from stack.testing import PATIENCE_S, wait_until
from tasks.wire import token_input
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import ServedApp


@pytest.fixture(autouse=True)
def _not_read_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_input, "_tokens", [])


@pytest.fixture
def client(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> httpx.Client:
    return serve().client


def test_they_are_decoded(client: httpx.Client, worker: LedgerWorker, cl100k: tiktoken.Encoding) -> None:
    arrays = [cl100k.encode(text) for text in ("one", "zwölf")]
    with worker.serving():
        several = client.post("/v1/embeddings", json={"input": arrays})
        one = client.post("/embeddings/", json={"input": arrays[1], "encoding_format": "float"})

    found = [item["embedding"] for item in several.json()["data"]]
    assert found == [pytest.approx(vector(text).tolist()) for text in ("one", "zwölf")]
    assert [item["embedding"] for item in one.json()["data"]] == found[1:]


def test_a_large_body_is_decoded_in_a_thread(
    client: httpx.Client, worker: LedgerWorker, cl100k: tiktoken.Encoding
) -> None:
    texts = [f"{n} " + "zwölf " * 60 for n in range(1000)]  # as many as LangChain sends at once
    with worker.serving():
        answer = client.post("/v1/embeddings", json={"input": [cl100k.encode(text) for text in texts]})

    assert answer.json()["data"][999]["embedding"] == pytest.approx(vector(texts[999]).tolist())


class _Gate:
    """In the place of the lock of the thread that reads the vocabulary."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)

    def __exit__(self, *_: object) -> None:
        """Others may follow."""


def test_while_it_is_being_loaded_everybody_else_is_served(
    client: httpx.Client, worker: LedgerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_input, "_loading", gate := _Gate())
    with worker.serving(), concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(client.post, "/v1/embeddings", json={"input": [606]})
        wait_until(gate.reached.is_set, message="nobody loads it")
        other = client.post("/v1/embeddings", json={"input": "two"})
        gate.opened.set()
        answer = call.result()

    assert other.status_code == 200
    assert answer.json()["data"][0]["embedding"] == pytest.approx(vector("one").tolist())


def test_tasks_take_them_too(client: httpx.Client, worker: LedgerWorker) -> None:
    task = client.post("/v1/tasks", json={"input": [[606], [31881, 3029, 11253]]})
    with worker.serving():
        client.get(f"{task.json()['links']['self']}?wait=20")
        found = client.get(task.json()["links"]["result"]).json()["data"]

    assert [item["embedding"] for item in found] == [pytest.approx(vector(text).tolist()) for text in ("one", "zwölf")]
