"""Batches over real processes: all roles on one storage, files of many lines, and what came back."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, Self

from tests.heavy import openai
from tests.processes import ApiProcess, Roles, WorkerProcess, wait_until
from worker_config.settings import DEFAULT_MODEL

TERMINAL = {"completed", "failed", "expired", "cancelled"}


def line(custom_id: str, texts: str | list[str], **body: Any) -> dict[str, Any]:
    fields = {"model": DEFAULT_MODEL, "input": texts} | body
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": fields}


class Bulk:
    """The roles that a batch needs, and OpenAI's client. A context manager: it closes the client."""

    def __init__(self, roles: Roles, **settings: Any) -> None:
        self.settings = {"storage_url": str(roles.folder / "storage")} | settings
        self.api: ApiProcess = roles.api(**self.settings)
        self.model: WorkerProcess = roles.worker(**self.settings)
        self.documents: WorkerProcess = roles.documents(**self.settings)
        self.client = openai.OpenAI(base_url=f"{self.api.base_url}/v1", api_key="any", max_retries=0)
        self.api.wait_ready()

    def upload(self, lines: Sequence[dict[str, Any]] | bytes) -> str:
        data = lines if isinstance(lines, bytes) else b"".join(json.dumps(each).encode() + b"\n" for each in lines)
        return self.client.files.create(file=("in.jsonl", io.BytesIO(data)), purpose="batch").id

    def create(self, lines: Sequence[dict[str, Any]] | bytes, **changed: Any) -> str:
        fields: dict[str, Any] = {"endpoint": "/v1/embeddings", "completion_window": "24h"} | changed
        return self.client.batches.create(input_file_id=self.upload(lines), **fields).id

    def ended(self, batch_id: str) -> openai.types.Batch:
        """The batch once it has ended. Asks again after any failure."""

        def look() -> openai.types.Batch | None:
            try:
                batch = self.client.batches.retrieve(batch_id)
            except openai.APIError:
                return None
            return batch if batch.status in TERMINAL else None

        return wait_until(look, message=f"the end of {batch_id}")

    def lines(self, file_id: str | None) -> list[dict[str, Any]]:
        if file_id is None:
            return []
        text = self.client.files.content(file_id).text
        return [json.loads(each) for each in text.splitlines()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
