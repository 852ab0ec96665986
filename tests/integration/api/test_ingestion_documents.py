"""The routes of an ingestion's documents and of its output."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from tasks.document_error import DocumentWarning
from tasks.ledger.client import Ledger
from tasks.records.documents import Document, DocumentStatus, write_documents
from tasks.records.ingestions import read_ingestion
from tasks.records.jobs import Counts, DonePage, Page, Stage
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import problem
from tests.integration.api.jobs import begin, create
from tests.integration.api.served import ServedApp, code_of
from tests.made_datasets import datasets_in, document, load, random_documents

WARNINGS = [
    DocumentWarning("pages_without_text", "2 pages have no text.", (2, 3)),
    DocumentWarning("xfa_form", "It is a form."),
]


def close_pages(ledger: Ledger, storage: Storage, ingestion_id: str, pages: list[list[Document]]) -> None:
    """As the pipeline does it; the last page is still with the model."""
    found = ledger.run(read_ingestion(ingestion_id))
    assert found is not None
    done = []
    for number, documents in enumerate(pages, 1):
        name = f"{found.record.folder}{number}.done"
        write_documents(storage, name, documents)
        of = {s: sum(document.status == s for document in documents) for s in ("loaded", "unchanged", "failed")}
        of["warned"] = sum(bool(document.warnings) for document in documents)
        done.append(DonePage(name, Counts(documents=len(documents), **of)))
    late = f"{found.record.folder}{len(pages) + 1}.list"
    write_documents(storage, late, [Document("late", "inline:late", record=0)])
    begin(ledger, ingestion_id, Page(Stage.EMBED, src=late, documents=1, size_bytes=10), done=done)


def outcome(name: str, status: str = "loaded") -> Document:
    found = Document(name, f"inline:{name}", DocumentStatus(status), ended=status != "failed")
    if status != "failed":
        return found
    return found._replace(stage="parsing", code="corrupt_document", message="It is broken.")


def test_documents_by_page_and_by_state(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    ingestion_id = create(client)["id"]
    pages = [
        [outcome("a"), outcome("b", "failed"), outcome("c").warned(WARNINGS)],
        [outcome("d", "unchanged").warned(WARNINGS[1:])],
        [outcome("e", "failed"), outcome("f", "failed")],
    ]
    close_pages(ledger, storage, ingestion_id, pages)
    path = f"/v1/ingestions/{ingestion_id}/documents"

    def walk(**params: str | int) -> list[str]:
        names: list[str] = []
        while True:
            page = client.get(path, params=params).json()
            names += [document["id"] for document in page["data"]]
            if not page["has_more"]:
                return names
            params["after"] = page["last_id"]

    assert walk() == ["a", "b", "c", "d", "e", "f", "late"]
    for limit in (1, 2, 3, 4, 7):
        assert walk(limit=limit) == ["a", "b", "c", "d", "e", "f", "late"]
        assert walk(limit=limit, filter="failed") == ["b", "e", "f"]
    assert walk(filter="loaded") == ["a", "c"]
    assert walk(filter="unchanged") == ["d"]
    assert walk(filter="in_progress") == ["late"]
    assert walk(filter="warned") == walk(filter="warned", limit=1) == ["c", "d"]
    scanned, form = client.get(path, params={"filter": "warned"}).json()["data"]
    assert scanned["warnings"] == [
        {"code": "pages_without_text", "message": "2 pages have no text.", "pages": [2, 3]},
        {"code": "xfa_form", "message": "It is a form.", "pages": []},
    ]
    assert (form["status"], form["warnings"]) == ("unchanged", scanned["warnings"][1:])
    failed = client.get(path, params={"filter": "failed", "limit": 1}).json()["data"][0]
    assert failed == {
        "id": "b",
        "object": "ingestion.document",
        "source_uri": "inline:b",
        "status": "failed",
        "documents": 1,
        "stage": "parsing",
        "last_error": {"code": "corrupt_document", "message": "It is broken."},
        "content_hash": None,
        "chunks": 0,
        "tokens": 0,
        "warnings": [],
    }


def test_documents_that_failed_alike_are_counted_together(
    client: httpx.Client, ledger: Ledger, storage: Storage
) -> None:
    ingestion_id = create(client)["id"]
    lost = outcome("g", "failed")._replace(stage="embedding", code="not_embedded", message="It has no vector.")
    pages = [[outcome("a").warned(WARNINGS), *(outcome(name, "failed") for name in "bcd")], [lost, outcome("h")]]
    close_pages(ledger, storage, ingestion_id, pages)
    path = f"/v1/ingestions/{ingestion_id}/documents/groups"

    groups = client.get(path).json()
    assert groups["complete"] is True
    broken = {"object": "ingestion.document_group", "code": "corrupt_document", "message": "It is broken."}
    assert groups["data"][0] == {**broken, "count": 3, "retryable": False, "names": ["b", "c", "d"]}
    assert [(one["code"], one["count"], one["retryable"]) for one in groups["data"][1:]] == [("not_embedded", 1, True)]
    warned = client.get(path, params={"filter": "warned"}).json()["data"]
    assert [(one["code"], one["names"]) for one in warned] == [("pages_without_text", ["a"]), ("xfa_form", ["a"])]


def test_few_documents_among_many_pages_take_several_answers(
    client: httpx.Client, ledger: Ledger, storage: Storage
) -> None:
    ingestion_id = create(client)["id"]
    close_pages(ledger, storage, ingestion_id, [[outcome(f"{n}")] for n in range(45)])
    seen: list[str] = []
    after, answers = "", 0
    while True:
        params: dict[str, str | int] = {"limit": 100, "after": after}
        page = client.get(f"/v1/ingestions/{ingestion_id}/documents", params=params).json()
        seen += [document["id"] for document in page["data"]]
        answers += 1
        if not page["has_more"]:
            break
        after = page["last_id"]
    assert seen == [*(str(n) for n in range(45)), "late"]
    assert answers == 3, "an answer must not read the whole of a large ingestion"


def test_a_query_that_cannot_be(client: httpx.Client) -> None:
    path = f"/v1/ingestions/{create(client)['id']}/documents"
    for name, value in (("filter", "lost"), ("after", "x"), ("after", "1-x"), ("limit", "0")):
        problem(client.get(path, params={name: value}), 400, "invalid_value", name)


def test_the_parts_of_the_output(client: httpx.Client, ledger: Ledger, root: Path) -> None:
    made = create(client, sink={"type": "dataset", "dataset": "handbook"})
    path = f"/v1/ingestions/{made['id']}/output"
    nothing = client.get(path).json()
    assert nothing == {
        "object": "list",
        "dataset": "handbook",
        "dataset_id": None,
        "version": 0,
        "dimension": None,
        "rows": 0,
        "data": [],
    }

    found = ledger.run(read_ingestion(made["id"]))
    assert found is not None
    load(root, *random_documents(3, 2), owner=found.owner)
    listed = client.get(path).json()
    assert (listed["rows"], listed["dimension"], listed["version"]) == (6, 4, 1)
    (shown,) = listed["data"]
    assert shown["rows"] == 6
    whole, again = client.get(shown["url"]), client.get(shown["url"])
    rows = pq.read_table(io.BytesIO(whole.content)).to_pylist()
    assert [(row["doc_id"], row["chunk_index"]) for row in rows] == [
        (f"d000{n}", at) for n in range(3) for at in (0, 1)
    ]
    assert whole.headers["etag"] == again.headers["etag"]
    assert int(whole.headers["content-length"]) == len(whole.content)

    load(root, document("new", [1, 2, 3, 4]), owner=found.owner)
    assert code_of(client.get(shown["url"])) == (410, "part_changed")
    assert [part["rows"] for part in client.get(path).json()["data"]] == [7]
    assert client.get(f"{path}/nothing").json()["error"]["code"] == "file_not_found"
    assert datasets_in(root).delete(found.owner, "handbook")
    assert client.get(shown["url"]).json()["error"]["code"] == "file_not_found"
    assert client.get(path).json()["data"] == []


def test_an_output_that_cannot_be_read_is_no_empty_one(
    client: httpx.Client, ledger: Ledger, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(client, sink={"type": "dataset", "dataset": "handbook"})
    found = ledger.run(read_ingestion(made["id"]))
    assert found is not None
    load(root, document("a", [1, 2, 3, 4]), owner=found.owner)
    path = f"/v1/ingestions/{made['id']}/output"
    (part,) = client.get(path).json()["data"]
    (root / ".incoming").rename(root / ".aside")  # as an unmounted disk looks
    for url in (path, part["url"]):
        problem(client.get(url), 503, "storage_unavailable")
    (root / ".aside").rename(root / ".incoming")
    monkeypatch.setitem(sys.modules, "tasks.datasets.export", None)
    answer = client.get(part["url"])
    assert (answer.status_code, answer.json()["error"]["param"]) == (503, "pyarrow")
    assert 'pip install "embedq[parquet]"' in answer.json()["detail"]


@pytest.mark.usefixtures("worker")
def test_a_database_has_no_parts(serve: Callable[..., ServedApp]) -> None:
    client = serve(sinks="store=postgresql://me:secret-password@db/vectors").client
    made = create(client, sink={"type": "postgresql", "name": "store", "table": "chunks"})
    answer = client.get(f"/v1/ingestions/{made['id']}/output")
    assert answer.status_code == 400
    assert "in the table chunks" in answer.json()["error"]["message"]
