"""Keys of the ledger for tests: made over HTTP, and sent with a request."""

from typing import Any

import httpx


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def make(client: httpx.Client, admin: dict[str, str], name: str, **fields: Any) -> dict[str, str]:
    """The header of a new key."""
    answer = client.post("/v1/keys", json={"name": name, **fields}, headers=admin)
    assert answer.status_code == 201, answer.text
    return bearer(answer.json()["key"])


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]
