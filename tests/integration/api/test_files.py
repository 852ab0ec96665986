"""Files over HTTP: what comes back, what is refused, and what is left when the storage fails."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tasks.ledger.client import Ledger
from tasks.records.files import new_file_id, put_file
from tests.integration.api.file_uploads import LINES, Upload, ids, problem, served, stored, upload_with
from tests.integration.api.served import ANN, BOB, KEYS, ServedApp
from tests.made_files import made_file
from tests.processes import PATIENCE_S, wait_until

BYTES = bytes(range(256)) * 8
MIB = 2**20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def app(serve: Callable[..., ServedApp], root: Path) -> ServedApp:
    return served(serve, root)


@pytest.fixture
def upload(client: httpx.Client) -> Upload:
    return upload_with(client)


def test_an_uploaded_file(upload: Upload, client: httpx.Client, root: Path) -> None:
    before = int(time.time())
    answer = upload()

    file = answer.json()
    assert answer.status_code == 200
    assert re.fullmatch(r"file-[0-9a-f]{32}", file["id"])
    assert before <= file["created_at"] <= time.time()
    assert file == {
        "id": file["id"],
        "object": "file",
        "bytes": len(LINES),
        "created_at": file["created_at"],
        "expires_at": file["created_at"] + 30 * 86_400,
        "filename": "a.jsonl",
        "purpose": "batch",
        "status": "processed",
    }
    assert stored(root) == [file["id"]]
    assert client.get(f"/v1/files/{file['id']}").json() == file
    assert client.get(f"/v1/files/{file['id']}/content").content == LINES


def test_a_document_may_be_empty(upload: Upload, client: httpx.Client) -> None:
    file = upload(b"", "__init__.py", "user_data").json()

    assert (file["bytes"], file["filename"]) == (0, "__init__.py")
    assert client.get(f"/v1/files/{file['id']}/content").content == b""


def test_an_expiry_that_was_asked_for(client: httpx.Client, redis_client: redis.Redis) -> None:
    head = '--b\r\nContent-Disposition: form-data; name="'
    fields = {"purpose": "user_data", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}

    def body() -> Iterator[bytes]:
        for name, value in fields.items():
            yield f'{head}{name}"\r\n\r\n{value}\r\n'.encode()
        yield f'{head}file"; filename="a"\r\n\r\n'.encode()
        began = int(time.time())
        wait_until(lambda: time.time() > began + 2, message="an upload that takes more than a second")
        yield b"x\r\n--b--\r\n"

    kind = {"content-type": "multipart/form-data; boundary=b"}
    file = client.post("/v1/files", content=body(), headers=kind).json()

    assert file["expires_at"] == file["created_at"] + 3600
    assert client.get(f"/v1/files/{file['id']}").json() == file
    ends_ms = redis_client.zscore("eq:ends", f"file:{file['id']}")
    assert ends_ms is not None
    assert 3500 < ends_ms / 1000 - time.time() <= 3600


def test_a_deleted_file_is_gone(upload: Upload, client: httpx.Client, root: Path) -> None:
    file_id = upload().json()["id"]

    assert client.delete(f"/v1/files/{file_id}").json() == {"id": file_id, "object": "file", "deleted": True}
    assert stored(root) == []
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        problem(client.request(method, f"/v1/files/{file_id}{path}"), 404, "file_not_found", "id")


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_aliases(upload: Upload, client: httpx.Client, prefix: str, slash: str) -> None:
    file = upload(path=f"{prefix}/files{slash}").json()

    assert client.get(f"{prefix}/files{slash}").json()["data"] == [file]
    assert client.get(f"{prefix}/files/{file['id']}{slash}").json() == file
    assert client.get(f"{prefix}/files/{file['id']}/content{slash}").content == LINES
    assert client.delete(f"{prefix}/files/{file['id']}{slash}").json()["deleted"] is True


# ---- content ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def content(upload: Upload) -> str:
    """The path of a file's content."""
    return f"/v1/files/{upload(BYTES, '../../ü b', 'user_data').json()['id']}/content"


def test_the_headers_of_content(client: httpx.Client, content: str) -> None:
    answer = client.get(content, headers={"accept": "application/binary"})

    assert (answer.status_code, answer.content) == (200, BYTES)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(BYTES))
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''..%2F..%2F%C3%BC%20b"
    assert answer.headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize(
    ("header", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=10-19", 10, 19),
        ("bytes=-5", 2043, 2047),
        ("bytes=-9999", 0, 2047),
        ("Bytes= 2000-", 2000, 2047),
        ("bytes=2000-9999", 2000, 2047),
    ],
)
def test_a_range_of_content(client: httpx.Client, content: str, header: str, first: int, last: int) -> None:
    answer = client.get(content, headers={"range": header})

    assert (answer.status_code, answer.content) == (206, BYTES[first : last + 1])
    assert answer.headers["content-range"] == f"bytes {first}-{last}/2048"


def test_a_range_of_another_version_is_the_whole(client: httpx.Client, content: str) -> None:
    tag = client.get(content).headers["etag"]

    assert client.get(content, headers={"range": "bytes=0-0", "if-range": tag}).status_code == 206
    assert client.get(content, headers={"range": "bytes=0-0", "if-range": '"other"'}).content == BYTES


@pytest.mark.parametrize(
    "header", ["bytes=0-1,5-6", "bytes=5-4", "bytes=-", "bytes=", "bytes=a-b", "items=0-5", "bytes=--5"]
)
def test_what_is_no_range_is_the_whole(client: httpx.Client, content: str, header: str) -> None:
    answer = client.get(content, headers={"range": header})

    assert (answer.status_code, answer.content) == (200, BYTES)


def test_the_head_of_content(client: httpx.Client, content: str) -> None:
    answer = client.head(content)

    assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(BYTES)))


@pytest.mark.parametrize("header", ["bytes=2048-", "bytes=2048-3000", "bytes=-0"])
def test_a_range_behind_the_end(client: httpx.Client, content: str, header: str) -> None:
    answer = client.get(content, headers={"range": header})

    problem(answer, 416, "range_not_satisfiable")
    assert answer.headers["content-range"] == "bytes */2048"


# ---- lists -----------------------------------------------------------------------------------------------------------


def test_pages(upload: Upload, client: httpx.Client) -> None:
    made = [upload(b"x", purpose=purpose).json()["id"] for purpose in ("vision", "user_data", "vision", "vision")]

    assert client.get("/v1/files").json() | {"data": None} == {
        "object": "list",
        "data": None,
        "first_id": made[3],
        "last_id": made[0],
        "has_more": False,
    }
    page = client.get("/v1/files", params={"limit": 2})
    assert (ids(page), page.json()["has_more"]) == ([made[3], made[2]], True)
    page = client.get("/v1/files", params={"limit": 2, "after": made[2]})
    assert (ids(page), page.json()["has_more"]) == ([made[1], made[0]], False)
    page = client.get("/v1/files", params={"limit": 2, "order": "asc", "purpose": "vision"})
    assert (ids(page), page.json()["has_more"]) == ([made[0], made[2]], True)
    assert ids(client.get("/v1/files", params={"purpose": "assistants_output"})) == []


def test_no_files(client: httpx.Client) -> None:
    assert client.get("/v1/files").json() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "-1"),
        ("limit", "10001"),
        ("limit", "x"),
        ("limit", "9" * 30),
        ("order", "up"),
        ("after", "file-x"),
        ("after", "../x"),
    ],
)
def test_a_list_that_is_refused(client: httpx.Client, name: str, value: str) -> None:
    problem(client.get("/v1/files", params={name: value}), 400, "invalid_value", name)


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"purpose": "nonsense"}, "invalid_value", "purpose"),
        ({"content": b""}, "invalid_file_format", "file"),
        ({"content": b"no json\n"}, "invalid_file_format", "file"),
        ({"filename": "a.txt"}, "invalid_file_format", "file"),
        ({"filename": "a" * 300 + ".jsonl"}, "invalid_value", "file"),
    ],
)
def test_an_upload_that_is_refused_leaves_nothing(
    upload: Upload, root: Path, change: dict[str, Any], code: str, param: str
) -> None:
    problem(upload(**change), 400, code, param)
    assert stored(root) == []
    assert upload().status_code == 200


def part(head: str, data: bytes = b"x") -> bytes:
    return b"--b\r\nContent-Disposition: form-data; " + head.encode("latin-1") + b"\r\n\r\n" + data + b"\r\n"


PURPOSE, FILE, END = part('name="purpose"', b"user_data"), part('name="file"; filename="a"'), b"--b--\r\n"
AFTER = part('name="expires_after[anchor]"', b"created_at")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (FILE + END, "missing_required_parameter", "purpose"),
        (PURPOSE + END, "missing_required_parameter", "file"),
        (PURPOSE + part('name="file"') + END, "invalid_value", "file"),
        (PURPOSE + part('name="files"; filename="a"') + END, "invalid_value", "file"),
        (PURPOSE + FILE + FILE + END, "invalid_value", None),
        (PURPOSE + part('name="file"; filename="a\tb"') + END, "invalid_value", "file"),
        (PURPOSE + part('name="file"; filename=""') + END, "invalid_value", "file"),
        (PURPOSE + FILE + AFTER + END, "missing_required_parameter", "expires_after[seconds]"),
        (
            PURPOSE + FILE + AFTER + part('name="expires_after[seconds]"', b"60") + END,
            "invalid_value",
            "expires_after[seconds]",
        ),
        (
            PURPOSE + FILE + part('name="expires_after[anchor]"', b"now") + END,
            "invalid_value",
            "expires_after[anchor]",
        ),
        (part('name="user"', bytes(70_000)) + PURPOSE + FILE + END, "invalid_value", None),
        (part('name="user"') * 70 + PURPOSE + FILE + END, "invalid_value", None),
        (part('name="user"', bytes(60_000)) * 20 + PURPOSE + FILE + END, "invalid_value", None),
        (part('name="user"; x="' + "y" * 20_000 + '"') + PURPOSE + FILE + END, "invalid_value", None),
        (part("user") + PURPOSE + FILE + END, "invalid_value", None),
        pytest.param(
            *(PURPOSE + FILE[:-2], "missing_required_parameter", "file"),
            marks=pytest.mark.filterwarnings("ignore:Unclosed file"),  # Starlette's parser leaves what has no end
        ),
        (b"no form", "invalid_value", None),
        (b"", "missing_required_parameter", "file"),
    ],
)
def test_a_form_that_is_refused_leaves_nothing(
    client: httpx.Client, root: Path, body: bytes, code: str, param: str | None
) -> None:
    answer = client.post("/v1/files", content=body, headers={"content-type": "multipart/form-data; boundary=b"})
    problem(answer, 400, code, param)
    assert not root.exists()


@pytest.mark.parametrize(
    ("content_type", "status", "code"),
    [
        ("multipart/form-data", 400, "invalid_value"),
        (f"multipart/form-data; boundary={'b' * 300}", 400, "invalid_value"),
        ("multipart/form-data; boundary=b; charset=undefined", 400, "invalid_unicode"),
        ("multipart/mixed; boundary=b", 415, "unsupported_media_type"),
        ("application/x-www-form-urlencoded", 415, "unsupported_media_type"),
    ],
)
def test_what_is_no_form(client: httpx.Client, content_type: str, status: int, code: str) -> None:
    answer = client.post("/v1/files", content=PURPOSE + FILE + END, headers={"content-type": content_type})
    problem(answer, status, code)


@pytest.mark.parametrize(
    ("content", "taken"),
    [
        (b"no JSON\n[1]\n" + LINES, True),
        (b"\xef\xbb\xbf" + LINES, True),
        (b'{"a": 1}', True),
        (b'"{}"\n{\n', False),
        (b'{"a": "' + b"x" * 5000 + b'"}\n', False),
        (b"x" * 5000 + b"\n" + LINES, True),
        (b"[]\n" * 50_000 + LINES, False),
    ],
    ids=["a line of many", "a mark", "no line break", "none", "a long line", "behind a long line", "far behind"],
)
def test_a_batch_has_a_line_that_is_an_object(
    serve: Callable[..., ServedApp], root: Path, content: bytes, *, taken: bool
) -> None:
    answer = upload_with(serve(storage_url=str(root), max_body_bytes=2048, max_input_bytes=1024).client)(content)
    if taken:
        assert answer.json()["bytes"] == len(content)
    else:
        problem(answer, 400, "invalid_file_format", "file")


def test_json_is_not_a_form(client: httpx.Client) -> None:
    problem(client.post("/v1/files", json={"purpose": "batch"}), 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd.jsonl", "/etc/passwd.jsonl", "..\\..\\x.jsonl", "%2e%2e%2fx.jsonl"]
)
def test_a_file_name_is_never_a_path(upload: Upload, root: Path, tmp_path: Path, name: str) -> None:
    file = upload(filename=name).json()

    assert file["filename"] == name
    assert stored(root) == [file["id"]]
    assert [path.name for path in tmp_path.iterdir() if "passwd" in path.name] == []


@pytest.mark.parametrize(
    "file_id", ["file-x", "..%2f..%2fetc", f"file-{'0' * 32}", "file-019aa8f63c5b7d1e9f002b7c4d5e6f70"]
)
def test_an_unknown_id(client: httpx.Client, file_id: str) -> None:
    answer = client.get(f"/v1/files/{file_id}")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_limits_of_size(serve: Callable[..., ServedApp], root: Path) -> None:
    client = serve(storage_url=str(root), max_file_bytes=3_000_000).client

    for purpose, size in (("batch", 3_000_001), ("vision", 3_000_001), ("vision", 5_000_000)):
        files = {"file": ("a.jsonl", b"{}\n" + bytes(size - 3))}
        problem(client.post("/v1/files", data={"purpose": purpose}, files=files), 413, "file_too_large", "file")
    assert stored(root) == []


def test_the_quota_of_an_owner(serve: Callable[..., ServedApp], root: Path) -> None:
    client = serve(storage_url=str(root), api_keys=KEYS, file_quota_bytes=1000).client

    def send(size: int, owner: dict[str, str]) -> httpx.Response:
        files = {"file": ("a", bytes(size))}
        return client.post("/v1/files", data={"purpose": "vision"}, files=files, headers=owner)

    first = send(900, ANN).json()["id"]
    refused = send(101, ANN)
    problem(refused, 403, "quota_exceeded")
    assert refused.headers["x-should-retry"] == "false"
    assert stored(root) == [first]
    assert send(101, BOB).status_code == 200
    client.delete(f"/v1/files/{first}", headers=ANN)
    assert send(101, ANN).status_code == 200


@pytest.mark.parametrize("stored_bytes", [1000, 0], ids=["full", "a little left"])
def test_an_upload_of_unknown_length_is_refused_at_its_end(
    serve: Callable[..., ServedApp], root: Path, stored_bytes: int
) -> None:
    client = serve(storage_url=str(root), file_quota_bytes=1000).client
    if stored_bytes:
        form: dict[str, Any] = {"data": {"purpose": "vision"}, "files": {"file": ("a", bytes(stored_bytes))}}
        assert client.post("/v1/files", **form).status_code == 200

    def pieces() -> Iterator[bytes]:
        yield PURPOSE + b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(16):
            yield bytes(MIB)
        yield b"\r\n" + END

    headers = {"content-type": "multipart/form-data; boundary=b"}
    problem(client.post("/v1/files", content=pieces(), headers=headers), 403, "quota_exceeded")


def test_uploads_at_the_same_time_keep_to_the_quota(serve: Callable[..., ServedApp], root: Path) -> None:
    """Each has room when it begins, and none says how long it is: whoever is late is not stored."""
    client = serve(storage_url=str(root), file_quota_bytes=4 * MIB).client
    both = threading.Barrier(2)

    def pieces() -> Iterator[bytes]:
        head = 'content-disposition: form-data; name="'
        yield f'--b\r\n{head}purpose"\r\n\r\nvision\r\n--b\r\n{head}file"; filename="a"\r\n\r\n'.encode()
        yield bytes(3 * MIB)
        both.wait(PATIENCE_S)
        yield b"\r\n--b--\r\n"

    def send(_: int) -> httpx.Response:
        headers = {"content-type": "multipart/form-data; boundary=b"}
        return client.post("/v1/files", content=pieces(), headers=headers)

    with ThreadPoolExecutor(2) as threads:
        stored_one, refused = sorted(threads.map(send, range(2)), key=lambda answer: answer.status_code)
    problem(refused, 403, "quota_exceeded")
    assert stored(root) == [stored_one.json()["id"]]


def test_an_owner_above_the_quota_starts_nothing(serve: Callable[..., ServedApp], root: Path, redis_url: str) -> None:
    client = serve(storage_url=str(root), file_quota_bytes=1000).client
    client.post("/v1/files", data={"purpose": "vision"}, files={"file": ("a", bytes(1000))})
    batch = {"input_file_id": "file-x", "endpoint": "/v1/embeddings", "completion_window": "24h"}
    ingestion = {"source": {"documents": [{"id": "a", "text": "x"}]}}
    assert client.post("/v1/batches", json=batch).status_code == 200
    ledger = Ledger.connect(redis_url)
    ledger.run(put_file(made_file(1)))  # an output
    ledger.close()
    problem(client.post("/v1/batches", json=batch), 403, "quota_exceeded")
    answer = client.post("/v1/ingestions", json=ingestion)
    problem(answer, 403, "quota_exceeded")


def test_a_file_of_somebody_else_does_not_exist(serve: Callable[..., ServedApp], root: Path) -> None:
    client = serve(storage_url=str(root), api_keys=KEYS).client
    form: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": ("a.jsonl", LINES)}}
    assert client.post("/v1/files", **form).status_code == 401
    file_id = client.post("/v1/files", headers=ANN, **form).json()["id"]

    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        problem(client.request(method, f"/v1/files/{file_id}{path}", headers=BOB), 404, "file_not_found", "id")
        assert client.request(method, f"/v1/files/{file_id}{path}").status_code == 401
    assert ids(client.get("/v1/files", headers=BOB)) == []
    assert ids(client.get("/v1/files", headers=ANN)) == [file_id]


def test_a_list_of_very_many_files(client: httpx.Client, redis_url: str) -> None:
    ledger = Ledger.connect(redis_url)
    made = [new_file_id() for _ in range(600)]
    for file_id in made:
        ledger.run(put_file(made_file(1, id=file_id)))
    ledger.close()
    newest_first = sorted(made, reverse=True)

    everything, some = client.get("/v1/files"), client.get("/v1/files", params={"limit": 599})
    assert (ids(everything), everything.json()["has_more"]) == (newest_first, False)
    assert (ids(some), some.json()["has_more"]) == (newest_first[:599], True)


@pytest.mark.parametrize("place", ["before", "behind"])
def test_what_is_no_part_of_the_form_is_not_read_without_end(
    app: ServedApp, root: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = app.client.build_request("POST", "/v1/files", data={"purpose": "user_data"}, files={"file": ("a", b"x")})
    form, sent = request.read(), 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        if place == "behind":
            yield form
        while sent < 2**28:
            sent += 2**16
            yield b"\r\n" + b"x" * 2**16

    with contextlib.suppress(httpx.TransportError):  # the server may close before the client has read the answer
        answer = app.client.post(
            "/v1/files", content=endless(), headers={"content-type": request.headers["content-type"]}
        )
        problem(answer, 400, "invalid_value")
    assert stored(root) == []
    assert len(caplog.records) <= 1
