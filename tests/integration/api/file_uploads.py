"""Over HTTP, for tests: an upload in one line, what is in the storage, what lists have, what an error says."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tasks.records.storage_identity import FOLDER

LINES = b'{"custom_id": "1"}\n{"custom_id": "2"}\n'
Upload = Callable[..., httpx.Response]


def upload_with(client: httpx.Client) -> Upload:
    """A function that uploads a file and returns the answer."""

    def send(content: bytes = LINES, filename: str = "a.jsonl", purpose: str = "batch") -> httpx.Response:
        return client.post("/v1/files", data={"purpose": purpose}, files={"file": (filename, content)})

    return send


def stored(root: Path) -> list[str]:
    """Every file in the storage but its id, unfinished ones too."""
    return sorted(name for place, _, names in os.walk(root) for name in names if Path(place).name != FOLDER)


def problem(answer: httpx.Response, status: int, code: str, param: str | None = None, *, case: object = "") -> str:
    """The sentence of an answer; fails unless it is this error."""
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.status_code, body["error"]["code"], body["error"]["param"]
    assert found == (status, code, param), f"{case}: {answer.text}"
    assert (body["status"], body["detail"]) == (status, body["error"]["message"])
    detail: str = body["detail"]
    return detail


def ids(answer: httpx.Response) -> list[str]:
    """Of what is listed."""
    return [each["id"] for each in answer.json()["data"]]


def pages(client: httpx.Client, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    """All that is listed there, page by page; two at a time unless a limit is given."""
    listed, query = list[list[dict[str, Any]]](), {"limit": 2} | query
    while True:
        answer = client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        listed.append(answer.json()["data"])
        if not answer.json()["has_more"]:
            return listed
        query["after"] = answer.json()["last_id"]
