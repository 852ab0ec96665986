"""Ingestions as tests of their routes make them."""

from typing import Any

import httpx

from tasks.ledger.client import Ledger
from tasks.records.ingestion_operations import Move, move_ingestion
from tasks.records.ingestions import IngestionStatus

GOOD: dict[str, Any] = {"source": {"documents": [{"id": "a", "text": "Some text."}]}}
OPEN = [status for status in IngestionStatus if not status.terminal]


def create(client: httpx.Client, **changed: Any) -> dict[str, Any]:
    answer = client.post("/v1/ingestions", json=GOOD | changed)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/v1/ingestions/{found['id']}"
    return found


def move(ledger: Ledger, ingestion_id: str, **changed: Any) -> None:
    assert ledger.run(move_ingestion(ingestion_id, Move(only_from=OPEN, **changed))).moved
