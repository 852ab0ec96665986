"""Datasets over HTTP: search, documents and chunks; for whom, and what is said of what cannot be."""

import json
import select
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from tasks.datasets.sqlite.search import SqliteContents
from tasks.document_error import DocumentWarning, warnings_to_json
from tests.integration.api.file_uploads import problem
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import ANN, BOB, KEYS, MODEL, ServedApp
from tests.made_datasets import MARKUP, NAME, OWNER, VECTORS, datasets_in, document, load, random_documents
from tests.processes import PATIENCE_S, wait_until

PATH = f"/v1/datasets/{NAME}/search"
UNFIT: list[tuple[dict[str, Any], str, str]] = [
    ({}, "missing_required_parameter", "query"),
    ({"query": "a", "vector": [1, 0, 0, 0]}, "missing_required_parameter", "query"),
    ({"query": ""}, "invalid_value", "query"),
    ({"query": 7}, "invalid_type", "query"),
    ({"vector": []}, "invalid_value", "vector"),
    ({"vector": [1, 2, 3]}, "invalid_value", "vector"),
    ({"vector": [0, 0, 0, 0]}, "invalid_value", "vector"),
    ({"vector": [1e300, 0, 0, 0]}, "invalid_value", "vector"),
    ({"vector": [True, 0, 0, 0]}, "invalid_type", "vector"),
    ({"vector": ["1", 0, 0, 0]}, "invalid_type", "vector"),
    ({"vector": [1] * 65_537}, "invalid_value", "vector"),
    ({"vector": [1, 0, 0, 0], "limit": 0}, "invalid_value", "limit"),
    ({"vector": [1, 0, 0, 0], "limit": 101}, "invalid_value", "limit"),
    ({"vector": [1, 0, 0, 0], "limt": 1}, "unknown_parameter", "limt"),
    ({"vector": [1, 0, 0, 0], "filter": {"a": {"b": 1}}}, "invalid_type", "filter.a"),
    ({"vector": [1, 0, 0, 0], "filter": {"a": 2**63}}, "invalid_value", "filter.a"),
    ({"vector": [1, 0, 0, 0], "filter": {f"f{n}": 1 for n in range(17)}}, "invalid_value", "filter"),
    ({"query": "a" * (2**20 + 1)}, "input_too_large", "query"),
    ({"query": "a", "model": "nobody/knows"}, "model_not_found", "model"),
]
REFUNDS = "Refunds take three days."


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def app(worker: LedgerWorker, serve: Callable[..., ServedApp], tmp_path: Path) -> ServedApp:
    return serve(storage_url=str(tmp_path / "storage"), api_keys=KEYS, search_bytes=2**20)


def search(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post(PATH, json=body, headers=ANN)


def test_a_text_finds_the_chunks_that_are_near_it(client: httpx.Client, worker: LedgerWorker, storage: Path) -> None:
    assert MODEL in VECTORS
    metadata = {"team": "sales", "title": MARKUP, "deep": {"a": [1, None]}}
    load(
        storage,
        document("refunds", vector(REFUNDS).tolist(), [0, 0, 1, -1], metadata=metadata, text=MARKUP),
        document("hours", [-1, -1, 0, 0]),
    )
    with worker.serving():
        answer = search(client, query=REFUNDS, limit=2)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert {key: found[key] for key in ("object", "dataset", "version", "rows")} == {
        "object": "list",
        "dataset": NAME,
        "version": 1,
        "rows": 3,
    }
    assert found["data"][0] == {
        "score": pytest.approx(1),
        "document_id": "refunds",
        "chunk": 0,
        "text": f"{MARKUP} 0",
        "start": 0,
        "end": 5,
        "headings": ["Top", "Part 0"],
        "page": 1,
        "metadata": metadata,
    }
    assert [row["document_id"] for row in found["data"]] == ["refunds", "refunds"]

    hours = search(client, vector=[-1, -1, 0, 0], filter={"document_id": "hours"}).json()
    assert [(row["document_id"], row["score"]) for row in hours["data"]] == [("hours", pytest.approx(1))]
    assert search(client, vector=[1, 1, 1, 1], filter={"team": "support"}).json()["data"] == []


def test_a_dataset_that_is_replaced_or_deleted_is_searched_as_it_is(client: httpx.Client, storage: Path) -> None:
    first = load(storage, *random_documents(9, 2))
    assert search(client, vector=[1, 0, 0, 0]).json()["rows"] == 18
    load(storage, document("new", [1, 0, 0, 0]))
    assert search(client, vector=[1, 0, 0, 0], limit=1).json()["data"][0]["document_id"] == "new"
    assert datasets_in(storage).delete(OWNER, NAME)
    problem(search(client, vector=[1, 0, 0, 0]), 404, "dataset_not_found", "name")
    load(storage, document("other", [1, 0]), dimension=2, vectors="another (revision r9), 2 dimensions")
    problem(search(client, vector=[1, 0, 0, 0]), 400, "invalid_value", "vector")
    assert search(client, vector=[1, 0]).json()["rows"] == 1
    problem(search(client, query="text", model=MODEL), 400, "dataset_model_mismatch", "model")
    assert first.version == 1


def test_words_and_meaning_and_both(client: httpx.Client, storage: Path) -> None:
    load(storage, document("near", [1, 0, 0, 0], text="apple"), document("word", [0, 1, 0, 0], text="pear"))

    def ids(**body: Any) -> list[str]:
        return [row["document_id"] for row in search(client, **body).json()["data"]]

    assert ids(query="pear", mode="text") == ["word"]
    assert ids(query="no such", mode="text") == []
    assert ids(vector=[1, 0, 0, 0], limit=1) == ["near"]
    assert set(ids(query="pear", vector=[1, 0, 0, 0], mode="hybrid", limit=2)) == {"near", "word"}
    for body, param in (
        ({"mode": "text"}, "query"),
        ({"mode": "hybrid", "vector": [1, 0, 0, 0]}, "query"),
        ({"mode": "text", "query": "pear", "vector": [1, 0, 0, 0]}, "vector"),
        ({"mode": "words", "query": "pear"}, "mode"),
    ):
        answer = search(client, **body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), body


def test_what_cannot_be_searched_is_named(client: httpx.Client, storage: Path) -> None:
    load(storage, document("a", [1, 0, 0, 0]))
    for body, code, param in UNFIT:
        answer = client.post(PATH, content=json.dumps(body), headers={**ANN, "content-type": "application/json"})
        problem(answer, 404 if code == "model_not_found" else 400, code, param)
    assert search(client, vector=[3e38, 3e38, 3e38, 0]).json()["rows"] == 1


def test_a_dataset_without_chunks_has_nothing_near(client: httpx.Client, storage: Path) -> None:
    load(storage, document("emptied"))
    for body in ({"query": "a"}, {"vector": [1, 2]}):
        answer = search(client, **body).json()
        assert (answer["data"], answer["rows"], answer["version"]) == ([], 0, 1)


def test_documents_and_chunks_are_listed_page_by_page(client: httpx.Client, storage: Path) -> None:
    metadata = {"title": MARKUP, "deep": {"a": [1, None]}}
    warned = document(MARKUP, [1, 2, 3, 4], metadata=metadata, text=MARKUP)
    warned = warned._replace(warnings=warnings_to_json([DocumentWarning("xfa_form", MARKUP, (2,))]))
    load(storage, *random_documents(3, 2), warned)
    load(storage, document("plain", [1, 2, 3, 4], metadata={"title": 7}))

    def pages(path: str, **query: str) -> list[dict[str, Any]]:
        listed, more = [], True
        while more:
            answer = client.get(f"/v1/datasets/{NAME}/{path}", params={"limit": "2", **query}, headers=ANN)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            listed += page["data"]
            more, query = page["has_more"], query | {"after": page["last_id"]}
        return listed

    documents = pages("documents")
    assert [(one["id"], one["chunks"]) for one in documents] == [
        ("d0000", 2),
        ("d0001", 2),
        ("d0002", 2),
        (MARKUP, 1),
        ("plain", 1),
    ]
    assert documents[3] == {
        "id": MARKUP,
        "chunks": 1,
        "source_uri": f"file:///{MARKUP}",
        "title": MARKUP,
        "metadata": metadata,
        "warnings": [{"code": "xfa_form", "message": MARKUP, "pages": [2]}],
    }
    assert documents[4]["warnings"] == []
    assert [documents[at]["title"] for at in (0, 4)] == ["Top", "Top"]
    chunks = pages("chunks")
    assert [(one["document_id"], one["chunk"]) for one in chunks] == [
        *((f"d000{n}", chunk) for n in range(3) for chunk in range(2)),
        (MARKUP, 0),
        ("plain", 0),
    ]
    assert chunks[6]["text"] == f"{MARKUP} 0"
    assert pages("chunks", document_id="d0001") == chunks[2:4]
    assert pages("chunks", document_id=MARKUP) == chunks[6:7]
    assert pages("chunks", document_id="nothing") == []
    for path in ("documents", "chunks"):
        for query in ({"after": "x"}, {"limit": "0"}, {"limit": "101"}):
            answer = client.get(f"/v1/datasets/{NAME}/{path}", params=query, headers=ANN)
            problem(answer, 400, "invalid_value", next(iter(query)))


def test_nobody_reads_the_datasets_of_others(client: httpx.Client, storage: Path) -> None:
    load(storage, document("a", [1, 0, 0, 0]))
    body = {"vector": [1, 0, 0, 0]}
    for method, path in (
        ("POST", PATH),
        ("GET", f"/v1/datasets/{NAME}/documents"),
        ("GET", f"/v1/datasets/{NAME}/chunks"),
    ):
        json_body = body if method == "POST" else None
        assert client.request(method, path, json=json_body, headers=ANN).status_code == 200
        problem(client.request(method, path, json=json_body, headers=BOB), 404, "dataset_not_found", "name")
        problem(client.request(method, path, json=json_body), 401, "invalid_api_key")


def test_searches_of_one_caller_leave_places_for_others_and_end_when_it_leaves(
    client: httpx.Client, storage: Path, app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(storage, document("a", [1, 0, 0, 0]))
    body, there, nearest = b'{"vector": [1, 0, 0, 0]}', Event(), SqliteContents.nearest
    head = f"POST {PATH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    key = "".join(f"{name}: {value}\r\n" for name, value in ANN.items())

    def late(*of: Any) -> Any:
        assert there.wait(PATIENCE_S)
        return nearest(*of)

    monkeypatch.setattr(SqliteContents, "nearest", late)
    sockets = [socket.create_connection(("127.0.0.1", app.port), PATIENCE_S) for _ in range(33)]
    for each in sockets:
        each.sendall(f"{head}{key}\r\n".encode() + body)
    (refused,), _, _ = select.select(sockets, [], [], PATIENCE_S)
    assert b"503 " in refused.recv(100)
    for each in sockets:
        each.close()
    wait_until(lambda: app.series("embedq_http_requests_total", status="499") == 32)
    there.set()
    assert search(client, vector=[1, 0, 0, 0]).json()["rows"] == 1
