"""Uploads that are refused before they are read: every kind of client hears why, and no broken pipe."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tests.heavy import openai
from tests.integration.api.conftest import root
from tests.integration.api.served import KEYS, Serve, ServedApp
from tests.processes import PATIENCE_S

__all__ = ["root"]

MB = 1_000_000
LARGE = bytes(40 * MB)
"""More than all the buffers of a connection hold."""
REFUSED = [(40 * MB, 413, "file_too_large"), (25 * MB, 403, "quota_exceeded")]


@pytest.fixture
def served(serve: Serve, root: Path) -> ServedApp:
    return serve(api_keys=KEYS, max_file_bytes=30 * MB, file_quota_bytes=20 * MB)


def test_curl_gets_the_error(served: ServedApp, tmp_path: Path) -> None:
    """As curl does it by itself, where it asks before it sends a large body, and without."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    for (size_bytes, status, code), expect in product(REFUSED, (True, False)):
        (tmp_path / "a").write_bytes(LARGE[:size_bytes])
        done = subprocess.run(
            [curl, "-sS", f"http://127.0.0.1:{served.port}/v1/files", "-H", "authorization: Bearer key of ann"]
            + ([] if expect else ["-H", "expect:"])
            + ["-F", "purpose=user_data", "-F", f"file=@{tmp_path / 'a'}"]
            + ["-o", str(tmp_path / "answer"), "-w", "%{http_code} %{size_upload}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        answered, uploaded = done.stdout.split()
        assert (answered, done.stderr) == (str(status), "")
        assert json.loads((tmp_path / "answer").read_bytes())["error"]["code"] == code
        assert not expect or int(uploaded) < MB


def test_the_answer_comes_before_the_body(served: ServedApp, root: Path) -> None:
    """Also where OpenAI's client sends the body of an upload, on a connection that is used again."""
    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer key of ann\r\n"
        b"content-type: multipart/form-data; boundary=b\r\ncontent-length: %d\r\n\r\n"
    )
    for size_bytes, status, _ in REFUSED:
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as caller:
            caller.sendall(head % size_bytes)
            assert caller.recv(100).startswith(b"HTTP/1.1 %d" % status)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="key of ann") as client:
        for size_bytes, status, code in REFUSED * 2:
            with pytest.raises(openai.APIStatusError) as refused:
                client.files.create(file=("a", LARGE[:size_bytes]), purpose="user_data")
            assert (refused.value.status_code, refused.value.code) == (status, code)
    assert not root.exists()  # no upload was begun
