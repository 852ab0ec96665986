"""Files over HTTP: what comes back, what is refused, what an owner may keep, and what a failing storage leaves."""

import contextlib
import errno
import re
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tasks.ledger.redis_keys import ANONYMOUS
from tests.integration.api.file_uploads import LINES, Upload, ids, problem, stored, upload_with
from tests.integration.api.served import ANN, BOB, KEYS, Serve, ServedApp
from tests.processes import PATIENCE_S, RedisServer, Roles, wait_until

BYTES = bytes(range(256)) * 8
MIB = 2**20
MULTIPART = {"content-type": "multipart/form-data; boundary=b"}


def part(head: str, data: bytes = b"x") -> bytes:
    return b"--b\r\nContent-Disposition: form-data; " + head.encode("latin-1") + b"\r\n\r\n" + data + b"\r\n"


PURPOSE, FILE, END = part('name="purpose"', b"user_data"), part('name="file"; filename="a"'), b"--b--\r\n"
BEGUN = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
ANCHOR, SECONDS = ("expires_after[anchor]", "expires_after[seconds]")
AFTER = part(f'name="{ANCHOR}"', b"created_at")


def post(client: httpx.Client, content: bytes | Iterator[bytes], **headers: str) -> httpx.Response:
    return client.post("/v1/files", content=content, headers=MULTIPART | headers)


def test_an_uploaded_file(upload: Upload, client: httpx.Client, root: Path, redis_client: redis.Redis) -> None:
    file = upload().json()
    assert re.fullmatch(r"file-[0-9a-f]{32}", file["id"])
    assert file == file | {"bytes": len(LINES), "filename": "a.jsonl", "purpose": "batch", "status": "processed"}
    assert file["expires_at"] == file["created_at"] + 30 * 86_400
    path = f"/v1/files/{file['id']}"
    assert stored(root) == [file["id"]]
    assert client.get(path).json() == file
    assert client.get(f"{path}/content").content == LINES
    assert client.delete(path).json() == {"id": file["id"], "object": "file", "deleted": True}
    assert stored(root) == []
    for method, below in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        problem(client.request(method, path + below), 404, "file_not_found", "id")
    empty = upload(b"", "__init__.py", "user_data").json()
    assert (empty["bytes"], client.get(f"/v1/files/{empty['id']}/content").content) == (0, b"")

    short = post(client, PURPOSE + AFTER + part(f'name="{SECONDS}"', b"3600") + FILE + END).json()
    assert short["expires_at"] == short["created_at"] + 3600
    ends_ms = redis_client.zscore("eq:ends", f"file:{short['id']}")
    assert ends_ms is not None
    assert 3500 < ends_ms / 1000 - time.time() <= 3600


def test_a_file_name_is_never_a_path(upload: Upload, root: Path, tmp_path: Path) -> None:
    names = ["../../../etc/passwd.jsonl", "/etc/passwd.jsonl", "..\\..\\x.jsonl", "%2e%2e%2fx.jsonl"]
    made = [upload(filename=name).json() for name in names]
    assert [file["filename"] for file in made] == names
    assert stored(root) == sorted(file["id"] for file in made)
    assert [path.name for path in tmp_path.iterdir() if "passwd" in path.name] == []


RANGES = {
    "bytes=0-0": (0, 0),
    "bytes=10-19": (10, 19),
    "bytes=-5": (2043, 2047),
    "bytes=-9999": (0, 2047),
    "Bytes= 2000-": (2000, 2047),
    "bytes=2000-9999": (2000, 2047),
}
NO_RANGES = ("bytes=0-1,5-6", "bytes=5-4", "bytes=-", "bytes=", "bytes=a-b", "items=0-5", "bytes=--5")


def test_content_and_its_ranges(client: httpx.Client, upload: Upload) -> None:
    path = f"/v1/files/{upload(BYTES, '../../ü b', 'user_data').json()['id']}/content"
    whole = client.get(path, headers={"accept": "application/binary"})
    assert (whole.status_code, whole.content) == (200, BYTES)
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-length"] == client.head(path).headers["content-length"] == str(len(BYTES))
    assert whole.headers["content-disposition"] == "attachment; filename*=UTF-8''..%2F..%2F%C3%BC%20b"
    assert whole.headers["accept-ranges"] == "bytes"
    for header, (first, last) in RANGES.items():
        answer = client.get(path, headers={"range": header})
        assert (answer.status_code, answer.content) == (206, BYTES[first : last + 1]), header
        assert answer.headers["content-range"] == f"bytes {first}-{last}/2048"
    for header in NO_RANGES:
        answer = client.get(path, headers={"range": header})
        assert (answer.status_code, answer.content) == (200, BYTES), header
    for header in ("bytes=2048-", "bytes=-0"):
        answer = client.get(path, headers={"range": header})
        problem(answer, 416, "range_not_satisfiable")
        assert answer.headers["content-range"] == "bytes */2048"
    for tag, status in ((whole.headers["etag"], 206), ('"other"', 200)):
        assert client.get(path, headers={"range": "bytes=0-0", "if-range": tag}).status_code == status


# ---- refusals --------------------------------------------------------------------------------------------------------

LONG = b"x" * 5000 + b"\n"
UPLOADS: list[tuple[dict[str, Any], str, str]] = [
    ({"purpose": "nonsense"}, "invalid_value", "purpose"),
    ({"filename": "a.txt"}, "invalid_file_format", "file"),
    ({"filename": "a" * 300 + ".jsonl"}, "invalid_value", "file"),
    *(
        ({"content": content}, "invalid_file_format", "file")
        for content in (b"", b'"{}"\n{\n', b'{"a": "' + LONG[:-1] + b'"}\n', b"[]\n" * 50_000 + LINES)
    ),
]
FORMS: list[tuple[bytes, str, str | None]] = [
    (FILE + END, "missing_required_parameter", "purpose"),
    (PURPOSE + END, "missing_required_parameter", "file"),
    (PURPOSE + part('name="file"') + END, "invalid_value", "file"),
    (PURPOSE + FILE + FILE + END, "invalid_value", None),
    (PURPOSE + part('name="file"; filename="a\tb"') + END, "invalid_value", "file"),
    (PURPOSE + part('name="file"; filename=""') + END, "invalid_value", "file"),
    (PURPOSE + FILE + AFTER + END, "missing_required_parameter", SECONDS),
    (PURPOSE + FILE + AFTER + part(f'name="{SECONDS}"', b"60") + END, "invalid_value", SECONDS),
    (PURPOSE + FILE + part(f'name="{ANCHOR}"', b"now") + END, "invalid_value", ANCHOR),
    (part('name="user"', bytes(70_000)) + PURPOSE + FILE + END, "invalid_value", None),
    (part('name="user"') * 70 + PURPOSE + FILE + END, "invalid_value", None),
    (part('name="user"', bytes(60_000)) * 20 + PURPOSE + FILE + END, "invalid_value", None),
    (part('name="user"; x="' + "y" * 20_000 + '"') + PURPOSE + FILE + END, "invalid_value", None),
    (PURPOSE + FILE[:-2], "missing_required_parameter", "file"),
    (b"no form", "invalid_value", None),
    (b"", "missing_required_parameter", "file"),
]
MEDIA_TYPES = [
    ("multipart/form-data", 400, "invalid_value"),
    (f"multipart/form-data; boundary={'b' * 300}", 400, "invalid_value"),
    ("multipart/form-data; boundary=b; charset=undefined", 400, "invalid_unicode"),
    ("multipart/mixed; boundary=b", 415, "unsupported_media_type"),
    ("application/json", 415, "unsupported_media_type"),
]


@pytest.mark.filterwarnings("ignore:Unclosed file")  # Starlette's parser leaves what has no end
def test_an_upload_that_is_refused_leaves_nothing(serve: Serve, root: Path) -> None:
    client = serve(max_body_bytes=2048, max_input_bytes=1024).client
    for body, code, param in FORMS:
        problem(post(client, body), 400, code, param)
    for media_type, status, code in MEDIA_TYPES:
        answer = client.post("/v1/files", content=PURPOSE + FILE + END, headers={"content-type": media_type})
        problem(answer, status, code)
    assert not root.exists()
    for before in (b"", PURPOSE + FILE + END):  # what is no part of the form is not read without end
        with contextlib.suppress(httpx.TransportError):  # the server may close before the client has read the answer
            problem(post(client, chain([before], [b"\r\n" + b"x" * 2**16] * 512)), 400, "invalid_value")
    upload = upload_with(client)
    for changed, code, param in UPLOADS:
        problem(upload(**changed), 400, code, param)
    assert stored(root) == []
    # One line that is an object will do.
    for content in (b"no JSON\n[1]\n" + LINES, b"\xef\xbb\xbf" + LINES, b'{"a": 1}', LONG + LINES):
        assert upload(content).json()["bytes"] == len(content)


# ---- how much an owner may keep --------------------------------------------------------------------------------------


def send(client: httpx.Client, size: int, owner: dict[str, str] | None = None) -> httpx.Response:
    files = {"file": ("a.jsonl", b"{}\n" + bytes(size - 3))}
    return client.post("/v1/files", data={"purpose": "vision"}, files=files, headers=owner)


def in_pieces(*sizes: int) -> Iterator[bytes]:
    """A form that does not say how long it is."""
    yield PURPOSE + BEGUN
    yield from (bytes(size) for size in sizes)
    yield b"\r\n" + END


def test_the_limit_of_size_and_the_quota_of_an_owner(serve: Serve, root: Path) -> None:
    client = serve(api_keys=KEYS, file_quota_bytes=5000, max_file_bytes=4000).client
    first = send(client, 3900, ANN).json()["id"]
    problem(post(client, in_pieces(*[MIB] * 16), **BOB), 413, "file_too_large", "file")
    for refused in (send(client, 1200, ANN), post(client, in_pieces(*[400] * 5), **ANN)):
        problem(refused, 403, "quota_exceeded")
        assert refused.headers["x-should-retry"] == "false"
    assert stored(root) == [first]
    assert send(client, 1200, BOB).status_code == 200
    client.delete(f"/v1/files/{first}", headers=ANN)
    assert send(client, 1200, ANN).status_code == 200


def test_uploads_at_the_same_time_keep_to_the_quota(serve: Serve, root: Path) -> None:
    """Each has room when it begins, and none says how long it is: whoever is late is not stored."""
    client, both = serve(file_quota_bytes=4 * MIB).client, threading.Barrier(2)

    def pieces() -> Iterator[bytes]:
        for number, piece in enumerate(in_pieces(3 * MIB)):
            if number == 2:
                both.wait(PATIENCE_S)
            yield piece

    with ThreadPoolExecutor(2) as threads:
        made = threads.map(lambda _: post(client, pieces()), range(2))
        stored_one, refused = sorted(made, key=lambda answer: answer.status_code)
    problem(refused, 403, "quota_exceeded")
    assert stored(root) == [stored_one.json()["id"]]


# ---- a storage that fails, and callers who do ------------------------------------------------------------------------


def test_without_any_temporary_folder_uploads_alone_are_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def gettempdir() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")  # all is read-only

    monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
    client = serve().client
    assert client.post("/v1/tasks", json={"input": "a"}).status_code == 202
    answer = upload_with(client)(b"x" * 2**21, purpose="user_data")
    assert "TMPDIR" in problem(answer, 503, "storage_unavailable")


def test_a_storage_that_vanishes_and_comes_back(upload: Upload, client: httpx.Client, root: Path) -> None:
    kept, lost = (upload().json()["id"] for _ in range(2))
    (root / ANONYMOUS / lost).unlink()
    problem(client.get(f"/v1/files/{lost}/content"), 404, "file_not_found", "id")
    assert client.delete(f"/v1/files/{lost}").status_code == 200
    away = root.rename(root.with_name("away"))
    problem(upload(), 503, "storage_unavailable")
    problem(client.get(f"/v1/files/{kept}/content"), 503, "storage_unavailable")
    problem(client.delete(f"/v1/files/{kept}"), 503, "storage_unavailable")  # not deleted, and not said to be
    assert ids(client.get("/v1/files")) == [kept]
    assert not root.exists()

    away.rename(root)
    for name in (ANONYMOUS, ".incoming"):  # something else has taken the folder's place; modes do not stop root
        (root / name).rename(root / "aside")
        (root / name).write_bytes(b"")
        problem(upload(), 503, "storage_unavailable")
        (root / name).unlink()
        (root / "aside").rename(root / name)
    assert stored(root) == ids(client.get("/v1/files")) == [kept]
    assert client.get(f"/v1/files/{kept}/content").content == LINES
    assert upload().status_code == 200


def test_a_full_disk_and_a_web_tier_that_is_killed(roles: Roles) -> None:
    api, root = roles.api(), roles.folder / ".embedq" / "storage"
    # The kernel refuses it to grow a file above this, as it does on a full disk.
    resource.prlimit(api.pid, resource.RLIMIT_FSIZE, (300_000, 300_000))
    with api.client() as client:
        kept = send(client, 200_000).json()["id"]
        answer = send(client, 400_000)
        problem(answer, 503, "disk_full")
        assert int(answer.headers["retry-after"]) <= 120
        assert stored(root) == [kept]
        full = send(client, 4_000_000)  # not even the temporary folder takes it
        assert "TMPDIR" in problem(full, 503, "disk_full")
    api.kill()
    with roles.api().client() as client:
        assert ids(client.get("/v1/files")) == [kept]
        assert len(client.get(f"/v1/files/{kept}/content").content) == 200_000
        assert send(client, 400_000).status_code == 200


def test_a_caller_who_hangs_up_leaves_nothing_and_nothing_is_half_there_without_redis(
    private_redis: RedisServer, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spool"))

    def spooled() -> bool:
        """Whether an unfinished upload is on the disk: a file of this process without a name, in that folder."""
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if str(descriptor.readlink()).startswith(f"{tmp_path}/spool/"):
                    return True
        return False

    with ServedApp(private_redis.url, storage_url=str(root)) as served:
        client, upload = served.client, upload_with(served.client)
        kept = upload().json()["id"]
        lines = ["POST /v1/files HTTP/1.1", "host: localhost", "content-length: 9999999"]
        head = "\r\n".join([*lines, f"content-type: {MULTIPART['content-type']}", "", ""])
        with socket.create_connection(("127.0.0.1", served.port)) as caller:
            caller.sendall(head.encode() + BEGUN + bytes(4_000_000))
            wait_until(spooled, message="the upload has not begun")
        wait_until(lambda: not spooled(), message="the unfinished upload was not removed")
        assert stored(root) == ids(client.get("/v1/files")) == [kept]

        def interrupted() -> Iterator[bytes]:
            yield PURPOSE + BEGUN + bytes(2_000_000)
            wait_until(spooled, message="the upload has not begun")
            private_redis.stop()
            yield b"\r\n" + END

        problem(post(client, interrupted()), 503, "redis_unavailable")
        problem(upload(), 503, "redis_unavailable")
        assert stored(root) == [kept]
        private_redis.start()
        wait_until(lambda: client.get("/v1/files").status_code == 200, message="Redis is not seen again")
        assert ids(client.get("/v1/files")) == [kept]
    assert stored(root) == [kept]
