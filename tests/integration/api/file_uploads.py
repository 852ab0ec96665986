"""Files over HTTP, for tests: an upload in one line, what is in the storage, what an error says."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

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
