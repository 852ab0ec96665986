"""A server whose datasets are in PostgreSQL (EMBEDQ_DATASETS), over HTTP and real processes."""

import io
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from tests.pg_server import PgServer
from tests.processes import Roles, wait_until

ENDED = {"completed", "failed", "cancelled"}


@pytest.fixture
def client(roles: Roles, postgres: PgServer, database: str) -> Iterator[httpx.Client]:
    settings: dict[str, Any] = {
        "storage_url": str(roles.folder / "storage"),
        "datasets": postgres.url(database),
        "sinks": f"store={postgres.url(database)}",
        "lease_s": 3,
    }
    roles.worker(**settings)
    roles.documents(**settings)
    api = roles.api(**settings)
    api.wait_ready()
    with api.client() as client:
        yield client


def ingest(client: httpx.Client, texts: dict[str, str], **more: Any) -> dict[str, Any]:
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    body = {"source": {"documents": documents}, "sink": {"type": "dataset"}} | more
    made = client.post("/v1/ingestions", json=body)
    made.raise_for_status()

    def now() -> dict[str, Any]:
        found: dict[str, Any] = client.get(f"/v1/ingestions/{made.json()['id']}").json()
        return found

    wait_until(lambda: now()["status"] in ENDED, message="the end of an ingestion")
    return now()


def files_of(roles: Roles) -> set[Path]:
    return {path for path in (roles.folder / "storage").rglob("*") if path.is_file()}


def test_they_are_filled_listed_searched_exported_and_deleted(client: httpx.Client) -> None:
    named = {"type": "dataset", "dataset": "handbook"}
    texts = {"refunds": "Refunds take three days", "hours": "We open at nine", "old": "Fax us"}
    assert ingest(client, texts, sink=named)["status"] == "completed"
    del texts["old"]
    counts = ingest(client, texts, sink=named, mode="sync")["file_counts"]
    assert (counts["unchanged"], counts["deleted"]) == (2, 1)
    own = ingest(client, {"a": "alone"})["id"]

    assert {each["name"] for each in client.get("/v1/datasets").json()["data"]} == {"handbook", own}
    documents = client.get("/v1/datasets/handbook/documents").json()["data"]
    assert [each["id"] for each in documents] == ["refunds", "hours"]
    for mode, fitting in (("vector", {"refunds", "hours"}), ("text", {"refunds"}), ("hybrid", {"refunds", "hours"})):
        body = {"query": "what of refunds", "mode": mode}
        found = client.post("/v1/datasets/handbook/search", json=body).json()["data"]
        assert {each["document_id"] for each in found} == fitting

    [part] = client.get(f"/v1/ingestions/{own}/output").json()["data"]
    content = client.get(f"/v1/ingestions/{own}/output/{part['name']}").raise_for_status().content
    assert pq.read_table(io.BytesIO(content)).column("text").to_pylist() == ["alone"]

    for name in ("handbook", own):
        assert client.delete(f"/v1/datasets/{name}").json()["deleted"] is True
    assert client.get("/v1/datasets").json()["data"] == []
    assert client.get("/v1/datasets/handbook/documents").status_code == 404

    knows_files_by_their_digests(client, {"type": "dataset", "dataset": "d"})
    knows_files_by_their_digests(client, {"type": "postgresql", "name": "store", "table": "docs"})


def knows_files_by_their_digests(client: httpx.Client, sink: dict[str, str]) -> None:
    upload = {"purpose": "user_data"}, {"file": ("a.txt", b"text")}
    file_id = client.post("/v1/files", data=upload[0], files=upload[1]).json()["id"]
    of_file = {"files": [{"id": file_id, "document_id": "a.txt"}]}
    named = [
        {"sha256": sha256(data).hexdigest(), "document_id": name}
        for name, data in (("a.txt", b"text"), ("b.txt", b"text"), ("c.txt", b"other"))
    ]
    body = {"model": ingest(client, {}, sink=sink, source=of_file)["model"], "sink": sink, "source": {"files": named}}
    for mode, known in (("skip_unchanged", ["a.txt"]), ("sync", ["a.txt"]), ("upsert", [])):
        answer = client.post("/v1/ingestions/files/known", json=body | {"mode": mode})
        assert answer.json()["data"] == known, answer.text
    named[0]["sha256"] = named[2]["sha256"]
    assert client.post("/v1/ingestions/files/known", json=body).json()["data"] == []


def test_one_that_is_away_is_told_and_accepts_nothing_by_halves(
    client: httpx.Client, postgres: PgServer, roles: Roles
) -> None:
    sink = {"type": "dataset", "dataset": "d"}
    assert ingest(client, {"a": "first"}, sink=sink)["status"] == "completed"
    before = files_of(roles)
    postgres.kill()
    body = {"source": {"documents": [{"id": "b", "text": "second"}]}, "sink": sink}
    known = "/v1/ingestions/files/known"
    asked = {"source": {"files": [{"sha256": "0" * 64, "document_id": "a"}]}, "sink": sink}
    for answer in (
        client.get("/v1/datasets/d"),
        client.post("/v1/ingestions", json=body),
        client.post(known, json=asked),
    ):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "sink_unavailable")
        assert "The database of EMBEDQ_DATASETS" in error["message"]
    assert files_of(roles) <= before
    postgres.start()
    assert ingest(client, {"b": "second"}, sink=sink)["status"] == "completed"
    assert client.get("/v1/datasets/d").json()["documents"] == 2
