"""Datasets over HTTP: listed, searched, read, deleted; what is said of what cannot be. `test_every_route.py`: whose."""

import select
import socket
from itertools import chain, product
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from tasks.datasets.sqlite.search import SqliteContents
from tasks.document_error import DocumentWarning, warnings_to_json
from tests.integration.api.file_uploads import pages, problem
from tests.integration.api.ledger_worker import LedgerWorker, vector
from tests.integration.api.served import ANN, BOB, KEYS, MODEL, Serve, ServedApp
from tests.integration.api.things import EMPTY
from tests.made_datasets import MARKUP, NAME, OWNER, VECTORS, datasets_in, document, load, random_documents
from tests.processes import PATIENCE_S, wait_until

HANDBOOK = f"/v1/datasets/{NAME}"
SEARCH = f"{HANDBOOK}/search"
REFUNDS = "Refunds take three days."


@pytest.fixture
def app(worker: LedgerWorker, serve: Serve) -> ServedApp:
    """Its client has the key of Ann."""
    served = serve(api_keys=KEYS, search_bytes=2**20)
    served.client.headers.update(ANN)
    wait_until(lambda: served.client.get("/health/ready").is_success)  # it knows the model's prompts from then on
    return served


def search(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post(SEARCH, json=body)


def names(client: httpx.Client, headers: dict[str, str] | None = None) -> list[str]:
    return [each["name"] for each in client.get("/v1/datasets", headers=headers).json()["data"]]


def listed(client: httpx.Client, path: str, **query: str) -> list[dict[str, Any]]:
    return list(chain.from_iterable(pages(client, path, **query)))


def test_datasets_are_listed_shown_and_deleted(client: httpx.Client, root: Path) -> None:
    assert client.get("/v1/datasets").json() == EMPTY
    mine = ["A.b", "a-b", "z", "B", "ing_is_no_id", "z"]  # the last is a second version
    for name in mine:
        load(root, document("a", [1, 2, 3, 4]), name=name)
    load(root, document("a", [1, 2, 3, 4]), owner="somebody", name="others")
    load(root, document("a", *[[1.0, 2, 3, 4]] * 7), document("b"))
    assert sorted(each["name"] for each in listed(client, "/v1/datasets")) == sorted({*mine, NAME})
    assert names(client, BOB) == []
    for query, value in (("after", "a b"), ("limit", "0")):
        problem(client.get("/v1/datasets", params={query: value}), 400, "invalid_value", query)

    (root / ".incoming").rename(root / ".aside")  # as an unmounted disk looks
    for method, path in (("GET", "/v1/datasets"), ("GET", HANDBOOK), ("DELETE", HANDBOOK)):
        problem(client.request(method, path), 503, "storage_unavailable")
    (root / ".aside").rename(root / ".incoming")

    shown = client.get(HANDBOOK).json()
    expected = {"object": "dataset", "name": NAME, "version": 1, "dimension": 4, "vectors": VECTORS}
    assert shown == shown | expected | {"rows": 7, "documents": 2, "of_one_ingestion": False}
    assert 0 < shown["created_at"] <= shown["updated_at"]
    assert shown["bytes"] > 0
    assert client.delete(HANDBOOK).json() == {"name": NAME, "object": "dataset", "deleted": True}
    for path, method in product((HANDBOOK, "/v1/datasets/nothing", "/v1/datasets/a%20b"), ("GET", "DELETE")):
        problem(client.request(method, path), 404, "dataset_not_found", "name")
    assert NAME not in names(client)
    load(root, document("a", [1, 2, 3, 4]))
    assert client.get(HANDBOOK).json()["id"] != shown["id"]


# ---- search and contents ---------------------------------------------------------------------------------------------


def test_a_text_finds_the_chunks_that_are_near_it(client: httpx.Client, worker: LedgerWorker, root: Path) -> None:
    assert MODEL in VECTORS
    metadata = {"team": "sales", "title": MARKUP, "deep": {"a": [1, None]}}
    near = vector(REFUNDS).tolist()
    refunds = document("refunds", near, [0, 0, 1, -1], metadata=metadata, text=MARKUP)
    load(root, refunds, document("hours", [-1, -1, 0, 0]))
    with worker.serving():
        answer = search(client, query=REFUNDS, limit=2)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found == found | {"object": "list", "dataset": NAME, "version": 1, "rows": 3}
    nearest, second = found["data"]
    place = {"document_id": "refunds", "chunk": 0, "start": 0, "end": 5, "headings": ["Top", "Part 0"], "page": 1}
    assert nearest == place | {"score": pytest.approx(1), "text": f"{MARKUP} 0", "metadata": metadata}
    assert second["document_id"] == "refunds"

    hours = search(client, vector=[-1, -1, 0, 0], filter={"document_id": "hours"}).json()
    assert [(row["document_id"], row["score"]) for row in hours["data"]] == [("hours", pytest.approx(1))]
    assert search(client, vector=[1, 1, 1, 1], filter={"team": "support"}).json()["data"] == []
    load(root, document("near", [1, 0, 0, 0], text="apple"), document("word", [0, 1, 0, 0], text="pear"))

    def ids(**body: Any) -> set[str]:
        return {row["document_id"] for row in search(client, **body).json()["data"]}

    assert ids(query="pear", mode="text") == {"word"}
    assert ids(query="pear", vector=[1, 0, 0, 0], mode="hybrid", limit=2) == {"near", "word"}


def test_a_dataset_that_is_replaced_or_deleted_is_searched_as_it_is(client: httpx.Client, root: Path) -> None:
    load(root, document("emptied"))
    for body in ({"query": "a"}, {"vector": [1, 2]}):
        answer = search(client, **body).json()
        assert (answer["data"], answer["rows"], answer["version"]) == ([], 0, 1)
    load(root, *random_documents(9, 2))
    assert search(client, vector=[1, 0, 0, 0]).json()["rows"] == 18
    load(root, document("new", [1, 0, 0, 0]))
    assert search(client, vector=[1, 0, 0, 0], limit=1).json()["data"][0]["document_id"] == "new"
    assert datasets_in(root).delete(OWNER, NAME)
    problem(search(client, vector=[1, 0, 0, 0]), 404, "dataset_not_found", "name")
    load(root, document("other", [1, 0]), dimension=2, vectors="another (revision r9), 2 dimensions")
    problem(search(client, vector=[1, 0, 0, 0]), 400, "invalid_value", "vector")
    assert search(client, vector=[1, 0]).json()["rows"] == 1
    problem(search(client, query="text", model=MODEL), 400, "dataset_model_mismatch", "model")


def test_documents_and_chunks_are_listed_page_by_page(client: httpx.Client, root: Path) -> None:
    metadata = {"title": MARKUP, "deep": {"a": [1, None]}}
    warned = document(MARKUP, [1, 2, 3, 4], metadata=metadata, text=MARKUP)
    warned = warned._replace(warnings=warnings_to_json([DocumentWarning("xfa_form", MARKUP, (2,))]))
    load(root, *random_documents(3, 2), warned)
    load(root, document("plain", [1, 2, 3, 4], metadata={"title": 7}))
    sizes = [("d0000", 2), ("d0001", 2), ("d0002", 2), (MARKUP, 1), ("plain", 1)]

    documents = listed(client, f"{HANDBOOK}/documents")
    assert [(one["id"], one["chunks"]) for one in documents] == sizes
    expected = {"id": MARKUP, "source_uri": f"file:///{MARKUP}", "title": MARKUP, "metadata": metadata}
    warnings = [{"code": "xfa_form", "message": MARKUP, "pages": [2]}]
    assert documents[3] == documents[3] | expected | {"warnings": warnings}
    assert [(documents[at]["title"], documents[at]["warnings"]) for at in (0, 4)] == [("Top", [])] * 2
    chunks = listed(client, f"{HANDBOOK}/chunks")
    assert [(one["document_id"], one["chunk"]) for one in chunks] == [
        (name, chunk) for name, size in sizes for chunk in range(size)
    ]
    assert chunks[6]["text"] == f"{MARKUP} 0"
    for name, of in (("d0001", chunks[2:4]), (MARKUP, chunks[6:7]), ("nothing", [])):
        assert listed(client, f"{HANDBOOK}/chunks", document_id=name) == of
    for path in ("documents", "chunks"):
        for query in ({"after": "x"}, {"limit": "0"}, {"limit": "101"}):
            answer = client.get(f"{HANDBOOK}/{path}", params=query)
            problem(answer, 400, "invalid_value", next(iter(query)))


def test_searches_of_one_caller_leave_places_for_others_and_end_when_it_leaves(
    client: httpx.Client, root: Path, app: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(root, document("a", [1, 0, 0, 0]))
    body, there, nearest = b'{"vector": [1, 0, 0, 0]}', Event(), SqliteContents.nearest
    head = f"POST {SEARCH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
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
