"""An ingestion over HTTP, for scenarios: it is started, and followed to its end."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

ENDED = {"completed", "failed", "cancelled"}


def records_file(path: Path, texts: Iterable[str]) -> Path:
    """A file of JSON lines, one document each, at `path`."""
    with path.open("w", encoding="utf-8") as lines:
        for number, text in enumerate(texts):
            lines.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")
    return path


def start(client: httpx.Client, path: Path, **options: Any) -> str:
    """The id of an ingestion of a file that the server reads itself, below `EMBEDQ_INGEST_ROOTS`."""
    body = {"source": {"urls": [f"file://{path.resolve()}"]}, "sink": {"type": "dataset"}} | options
    return str(client.post("/ingestions", json=body).raise_for_status().json()["id"])


def read(client: httpx.Client, ingestion_id: str) -> dict[str, Any]:
    """The ingestion as it is now."""
    ingestion: dict[str, Any] = client.get(f"/ingestions/{ingestion_id}").raise_for_status().json()
    return ingestion


def require_completed(ingestion: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same ingestion, which has ended and of which nothing has failed."""
    assert (ingestion["status"], ingestion["file_counts"]["failed"]) == ("completed", 0), ingestion
    return ingestion
