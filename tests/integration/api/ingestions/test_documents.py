"""The routes of an ingestion's documents and of its output."""

import httpx
import pytest

from tasks.errors import NotStored
from tasks.ledger.client import Ledger
from tasks.records.datasets import Catalog, DatasetPart, advance, present
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus
from tasks.records.ingestion_operations import read_ingestion
from tasks.records.ingestions import ClosedPage, PageInFlight, PageStage
from tasks.storage.storage import Storage
from tests.integration.api.ingestions.requests import create, move


def close_pages(ledger: Ledger, storage: Storage, ingestion_id: str, pages: list[list[DocumentOutcome]]) -> None:
    """As the pipeline does it; the last page stays in flight."""
    found = ledger.run(read_ingestion(ingestion_id))
    assert found is not None
    closed = []
    for number, outcomes in enumerate(pages):
        name = found.outcomes_name(number, "f")
        storage.write(name, b"".join(outcome.to_line() for outcome in outcomes))
        of = [sum(outcome.status == status for outcome in outcomes) for status in ("loaded", "unchanged", "failed")]
        closed.append(ClosedPage(number, name, *of))
    manifest = found.manifest_name(len(pages), "f")
    storage.write(manifest, b'["late","inline:late","",null,{},0,{},""]\n')
    flying = PageInFlight(len(pages), PageStage.EMBED, manifest, 1, 10)
    move(ledger, ingestion_id, close=closed, put=[flying], set={"next_page": len(pages) + 1})


def outcome(name: str, status: str = "loaded") -> DocumentOutcome:
    found = DocumentOutcome(name, f"inline:{name}", DocumentStatus(status))
    if status != "failed":
        return found
    return found._replace(stage="parsing", code="corrupt_document", message="It is broken.")


def test_documents_by_page_and_by_state(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    ingestion_id = create(client)["id"]
    pages = [
        [outcome("a"), outcome("b", "failed"), outcome("c")],
        [outcome("d", "unchanged")],
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
    failed = client.get(path, params={"filter": "failed", "limit": 1}).json()["data"][0]
    assert failed == {
        "id": "b",
        "object": "ingestion.document",
        "source_uri": "inline:b",
        "status": "failed",
        "stage": "parsing",
        "last_error": {"code": "corrupt_document", "message": "It is broken."},
        "content_hash": None,
        "chunks": 0,
        "tokens": 0,
    }


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


@pytest.mark.parametrize(("name", "value"), [("filter", "lost"), ("after", "x"), ("after", "1-x"), ("limit", "0")])
def test_a_query_that_cannot_be(client: httpx.Client, name: str, value: str) -> None:
    answer = client.get(f"/v1/ingestions/{create(client)['id']}/documents", params={name: value})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_the_parts_of_the_output(client: httpx.Client, ledger: Ledger, storage: Storage) -> None:
    made = create(client, sink={"type": "parquet", "dataset": "handbook"})
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

    storage.write("datasets/x/part.1", b"PAR1 bytes")
    part = DatasetPart(3, "datasets/x/part.1", "datasets/x/receipts.1", rows=7, documents=2, size_bytes=10)
    found = ledger.run(read_ingestion(made["id"]))
    assert found is not None
    before = present(storage, found.owner, "handbook")
    assert advance(storage, before, Catalog(found.owner, "handbook", dimension=4, next_part=4, parts=(part,)))

    listed = client.get(path).json()
    assert (listed["rows"], listed["dimension"], listed["version"]) == (7, 4, 1)
    assert listed["dataset_id"] == present(storage, found.owner, "handbook").catalog.id
    (shown,) = listed["data"]
    assert (shown["name"], shown["rows"], shown["documents"], shown["bytes"]) == ("part-000003.parquet", 7, 2, 10)
    whole = client.get(shown["url"])
    assert (whole.status_code, whole.content) == (200, b"PAR1 bytes")
    assert whole.headers["etag"] == f'"{shown["etag"]}"'
    some = client.get(shown["url"], headers={"Range": "bytes=5-7"})
    assert (some.status_code, some.content, some.headers["content-range"]) == (206, b"byt", "bytes 5-7/10")
    assert client.get(shown["url"], headers={"Range": "bytes=99-"}).status_code == 416
    storage.delete("datasets/x/part.1")
    for gone in (shown["url"], f"{path}/part-000009.parquet", f"{path}/nothing"):
        assert client.get(gone).json()["error"]["code"] == "file_not_found"


def test_an_output_that_cannot_be_read_is_no_empty_one(
    client: httpx.Client, ledger: Ledger, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(client, sink={"type": "parquet", "dataset": "handbook"})
    found = ledger.run(read_ingestion(made["id"]))
    assert found is not None
    assert advance(storage, present(storage, found.owner, "handbook"), Catalog(found.owner, "handbook"))

    def gone(*_: object) -> bytes:
        raise NotStored("This object is not in the storage.")

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "read", gone)
        for path in ("output", "output/part-000000.parquet"):
            answer = client.get(f"/v1/ingestions/{made['id']}/{path}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_unavailable")
    assert client.get(f"/v1/ingestions/{made['id']}/output").json()["version"] == 1


def test_a_database_has_no_parts(client: httpx.Client) -> None:
    made = create(client, sink={"type": "postgresql", "name": "store", "table": "chunks"})
    answer = client.get(f"/v1/ingestions/{made['id']}/output")
    assert answer.status_code == 400
    assert "in the table chunks" in answer.json()["error"]["message"]
