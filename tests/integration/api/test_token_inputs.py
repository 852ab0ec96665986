"""Token numbers over HTTP: with a vocabulary, without one, and while it is being loaded."""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import NoReturn

import httpx
import pytest
import tiktoken

from api.request.token_input import ENCODING
from stack.testing import PATIENCE_S, wait_until
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import ServedApp

SMALL = tiktoken.Encoding(
    name=ENCODING, pat_str=r"\w+|\W+", mergeable_ranks={bytes([byte]): byte for byte in range(256)}, special_tokens={}
)
"""In the place of the real one, which would have to be downloaded."""


@pytest.fixture
def client(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> httpx.Client:
    return serve(token_inputs="tiktoken").client


def test_they_are_decoded(client: httpx.Client, worker: LedgerWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, ENCODING, SMALL)
    arrays = [SMALL.encode(text) for text in ("one", "zwölf")]
    with worker.serving():
        several = client.post("/v1/embeddings", json={"input": arrays})
        one = client.post("/embeddings/", json={"input": arrays[1], "encoding_format": "float"})

    found = [item["embedding"] for item in several.json()["data"]]
    assert found == [pytest.approx(vector(text).tolist()) for text in ("one", "zwölf")]
    assert [item["embedding"] for item in one.json()["data"]] == found[1:]


def test_a_large_body_is_decoded_in_a_thread(
    client: httpx.Client, worker: LedgerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, ENCODING, SMALL)
    texts = [f"{n} " + "x" * 400 for n in range(1000)]  # as many as LangChain sends at once
    with worker.serving():
        answer = client.post("/v1/embeddings", json={"input": [SMALL.encode(text) for text in texts]})

    assert answer.json()["data"][999]["embedding"] == pytest.approx(vector(texts[999]).tolist())


def test_without_a_vocabulary_they_are_refused(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(_name: str) -> NoReturn:
        raise OSError("no network")

    monkeypatch.setattr(tiktoken, "get_encoding", offline)
    answer = client.post("/v1/embeddings", json={"input": [1, 2]})

    error = answer.json()["error"]
    assert answer.status_code == 400
    assert (error["code"], error["param"]) == ("invalid_type", "input")
    assert "check_embedding_ctx_length=False" in error["message"]


def test_while_it_is_being_loaded_everybody_else_is_served(
    client: httpx.Client, worker: LedgerWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, go = threading.Event(), threading.Event()

    def slow(_name: str) -> tiktoken.Encoding:
        loading.set()
        assert go.wait(PATIENCE_S)
        return SMALL

    monkeypatch.setattr(tiktoken, "get_encoding", slow)
    with worker.serving(), concurrent.futures.ThreadPoolExecutor() as pool:
        call = pool.submit(client.post, "/v1/embeddings", json={"input": SMALL.encode("one")})
        wait_until(loading.is_set, message="nobody loads it")
        other = client.post("/v1/embeddings", json={"input": "two"})
        go.set()
        answer = call.result()

    assert other.status_code == 200
    assert answer.json()["data"][0]["embedding"] == pytest.approx(vector("one").tolist())


def test_native_routes_take_none(client: httpx.Client) -> None:
    answer = client.post("/v1/tasks", json={"input": [[1], [2]]})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0]")


def test_who_does_not_wait_for_the_vocabulary_is_told_to_come_back(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def slow(_name: str) -> tiktoken.Encoding:
        assert go.wait(PATIENCE_S)
        return SMALL

    monkeypatch.setattr(tiktoken, "get_encoding", slow)
    answer = client.post("/v1/embeddings", json={"input": [1, 2]}, headers={"x-stainless-read-timeout": "0.1"})
    go.set()

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert int(answer.headers["retry-after"]) > 0
