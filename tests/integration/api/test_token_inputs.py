"""Token numbers over HTTP."""

from collections.abc import Callable

import httpx
import pytest
import tiktoken

from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import ServedApp


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


def test_tasks_take_them_too(client: httpx.Client, worker: LedgerWorker) -> None:
    task = client.post("/v1/tasks", json={"input": [[606], [31881, 3029, 11253]]})
    with worker.serving():
        client.get(f"{task.json()['links']['self']}?wait=20")
        found = client.get(task.json()["links"]["result"]).json()["data"]

    assert [item["embedding"] for item in found] == [pytest.approx(vector(text).tolist()) for text in ("one", "zwölf")]
