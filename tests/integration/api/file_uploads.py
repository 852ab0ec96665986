"""Files over HTTP, for tests: a served app with a storage of its own, an upload in one line, what is in the storage."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tasks.records.storage_identity import FOLDER
from tests.integration.api.served import ServedApp

LINES = b'{"custom_id": "1"}\n{"custom_id": "2"}\n'
Upload = Callable[..., httpx.Response]


def upload_with(client: httpx.Client) -> Upload:
    """A function that uploads a file and returns the answer. `announced`: with a Content-Length."""

    def send(
        content: bytes = LINES,
        filename: str = "a.jsonl",
        purpose: str = "batch",
        path: str = "/v1/files",
        *,
        announced: bool = True,
    ) -> httpx.Response:
        request = client.build_request("POST", path, data={"purpose": purpose}, files={"file": (filename, content)})
        if announced:
            return client.send(request)
        kind = {"content-type": request.headers["content-type"]}
        return client.post(path, content=iter([request.read()]), headers=kind)

    return send


def stored(root: Path) -> list[str]:
    """Every file in the storage but its id, unfinished ones too."""
    return sorted(name for place, _, names in os.walk(root) for name in names if Path(place).name != FOLDER)


def spooled() -> int:
    """Bytes of unfinished uploads on the disk: in files of this process without a name, in the temporary folder."""
    size_bytes = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            place = str(descriptor.readlink())
            if place.startswith(f"{tempfile.gettempdir()}/") and place.endswith(" (deleted)"):
                size_bytes += descriptor.stat().st_size
    return size_bytes


def problem(answer: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    """Fails unless the answer is this error."""
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert answer.json()["error"]["param"] == param


def ids(answer: httpx.Response) -> list[str]:
    """Of the files in a list."""
    return [file["id"] for file in answer.json()["data"]]


def served(serve: Callable[..., ServedApp], root: Path, **settings: Any) -> ServedApp:
    """A served app whose storage is `root`."""
    return serve(storage_url=str(root), **settings)
