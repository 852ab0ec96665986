"""Ingestions into PostgreSQL: into a table that a request names, and into the datasets of a server."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.ledger.client import Ledger
from tasks.records.ingestions import IngestionStatus
from tests.integration.api.ledger_worker import vector
from tests.integration.documents.ingestions.hands import IngestionHands, nothing_is_left
from tests.pg_server import PgServer
from tests.processes import Roles, wait_until

S = IngestionStatus
SINK = {"type": "postgresql", "name": "store", "table": "docs"}
NAMED = {"type": "dataset", "dataset": "handbook"}
QUERY = "SELECT doc_id, text, embedding::real[] AS v FROM docs ORDER BY doc_id, chunk_index"


@pytest.fixture
def hands(redis_url: str, tmp_path: Path, postgres: PgServer, database: str) -> Iterator[IngestionHands]:
    ledger = Ledger.connect(redis_url)
    yield IngestionHands(ledger, tmp_path / "storage", sinks=f"store={postgres.url(database)}")
    ledger.close()


def test_documents_become_rows_of_a_table(hands: IngestionHands, postgres: PgServer, database: str) -> None:
    postgres.execute("CREATE TABLE docs (somebody_elses int)", database)
    made = hands.texts({"a": "first", "b": "second", "c": "third"}, sink=SINK)
    hands.work()
    ingestion = hands.ingestion(made)
    assert ingestion.error is not None
    assert (ingestion.error.code, ingestion.resumable) == ("sink_refused", True)
    postgres.execute("DROP TABLE docs", database)
    assert hands.retry(made)
    hands.work()
    assert (hands.ingestion(made).status, hands.ingestion(made).counts.loaded) == (S.COMPLETED, 3)
    nothing_is_left(hands, made)

    again = hands.texts({"a": "first", "b": "other"}, sink=SINK, mode="sync")
    hands.work()
    ingestion, counts = hands.ingestion(again), hands.ingestion(again).counts
    assert (ingestion.status, ingestion.error) == (S.COMPLETED, None)
    assert (counts.unchanged, counts.loaded, counts.deleted) == (1, 1, 1)
    rows = postgres.execute(QUERY, database)
    assert [(row["doc_id"], row["text"]) for row in rows] == [("a", "first"), ("b", "other")]
    for row in rows:
        np.testing.assert_allclose(row["v"], vector(row["text"]), rtol=1e-6)


def ingest(client: httpx.Client, texts: Mapping[str, str], **more: Any) -> dict[str, Any]:
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    body = {"source": {"documents": documents}, "sink": {"type": "dataset"}} | more
    made = client.post("/v1/ingestions", json=body).raise_for_status().json()["id"]

    def now() -> dict[str, Any]:
        found: dict[str, Any] = client.get(f"/v1/ingestions/{made}").json()
        return found

    wait_until(lambda: now()["status"] in {"completed", "failed"}, message="the end of an ingestion")
    return now()


def test_datasets_are_filled_listed_searched_exported_and_deleted(
    roles: Roles, postgres: PgServer, database: str
) -> None:
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
        texts = {"refunds": "Refunds take three days", "hours": "We open at nine", "old": "Fax us"}
        assert ingest(client, texts, sink=NAMED)["status"] == "completed"
        del texts["old"]
        counts = ingest(client, texts, sink=NAMED, mode="sync")["file_counts"]
        assert (counts["unchanged"], counts["deleted"]) == (2, 1)
        own = ingest(client, {"a": "alone"})["id"]
        assert {each["name"] for each in client.get("/v1/datasets").json()["data"]} == {"handbook", own}
        documents = client.get("/v1/datasets/handbook/documents").json()["data"]
        assert [each["id"] for each in documents] == ["refunds", "hours"]
        found = client.post("/v1/datasets/handbook/search", json={"query": "refunds", "mode": "text"}).json()["data"]
        assert [each["document_id"] for each in found] == ["refunds"]
        [part] = client.get(f"/v1/ingestions/{own}/output").json()["data"]
        content = client.get(f"/v1/ingestions/{own}/output/{part['name']}").raise_for_status().content
        assert pq.read_table(io.BytesIO(content)).column("text").to_pylist() == ["alone"]
        postgres.kill()
        for answer in (
            client.get("/v1/datasets/handbook"),
            client.post("/v1/ingestions", json={"source": {"documents": [{"id": "b", "text": "x"}]}, "sink": NAMED}),
        ):
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "sink_unavailable")
            assert "The database of EMBEDQ_DATASETS" in error["message"]
        assert len(client.get("/v1/ingestions").json()["data"]) == 3, "nothing is accepted by halves"
        postgres.start()
        for name in ("handbook", own):
            assert client.delete(f"/v1/datasets/{name}").json()["deleted"] is True
        assert client.get("/v1/datasets").json()["data"] == []
        assert client.get("/v1/datasets/handbook/documents").status_code == 404
