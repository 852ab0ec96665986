"""Files when the storage fails, callers hang up, uploads are slow, and processes die."""

import errno
import os
import resource
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import httpx
import pytest
import redis

from tasks.ledger.redis_keys import ANONYMOUS
from tests.integration.api.file_uploads import LINES, Upload, ids, problem, served, spooled, stored, upload_with
from tests.integration.api.served import ServedApp
from tests.processes import RedisServer, Roles, wait_until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder of this test's own."""
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spool"))


@pytest.fixture
def app(serve: Callable[..., ServedApp], root: Path) -> ServedApp:
    return served(serve, root)


@pytest.fixture
def upload(client: httpx.Client) -> Upload:
    return upload_with(client)


def test_a_storage_that_cannot_be_opened(serve: Callable[..., ServedApp], tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    client = serve(storage_url=str(tmp_path / "taken" / "x")).client

    answer = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", LINES)})
    problem(answer, 503, "storage_unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert str(tmp_path) not in answer.text
    assert client.get("/v1/files").json()["data"] == []


def test_without_any_temporary_folder_uploads_alone_are_refused(
    serve: Callable[..., ServedApp], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gettempdir() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")  # all is read-only

    monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
    client = served(serve, root).client

    assert client.post("/v1/tasks", json={"input": "a"}).status_code == 202
    answer = upload_with(client)(b"x" * 2**21, purpose="user_data")
    problem(answer, 503, "storage_unavailable")
    assert "TMPDIR" in answer.json()["detail"]


def test_a_storage_that_vanishes_and_comes_back(upload: Upload, client: httpx.Client, root: Path) -> None:
    kept = upload().json()["id"]
    away = root.rename(root.with_name("away"))

    problem(upload(), 503, "storage_unavailable")
    problem(client.get(f"/v1/files/{kept}/content"), 503, "storage_unavailable")
    assert ids(client.get("/v1/files")) == [kept]
    assert not root.exists()

    problem(client.delete(f"/v1/files/{kept}"), 503, "storage_unavailable")  # not deleted, and not said to be

    away.rename(root)
    assert client.get(f"/v1/files/{kept}/content").content == LINES
    assert upload().status_code == 200


def test_content_that_somebody_removed(upload: Upload, client: httpx.Client, root: Path) -> None:
    file_id = upload().json()["id"]
    (root / ANONYMOUS / file_id).unlink()

    problem(client.get(f"/v1/files/{file_id}/content"), 404, "file_not_found", "id")
    assert client.delete(f"/v1/files/{file_id}").status_code == 200


def test_a_storage_that_cannot_be_written(upload: Upload, client: httpx.Client, root: Path) -> None:
    kept = upload().json()["id"]
    for part in (ANONYMOUS, ".incoming"):  # something else has taken the folder's place; modes do not stop root
        (root / part).rename(root / "aside")
        (root / part).write_bytes(b"")
        problem(upload(), 503, "storage_unavailable")
        (root / part).unlink()
        (root / "aside").rename(root / part)
    assert ids(client.get("/v1/files")) == [kept]
    assert stored(root) == [kept]
    assert upload().status_code == 200


def test_a_full_disk(roles: Roles) -> None:
    api = roles.api(storage_url=roles.folder / "storage")
    # The kernel refuses it to grow a file above this, as it does on a full disk.
    resource.prlimit(api.pid, resource.RLIMIT_FSIZE, (300_000, 300_000))
    with api.client() as client:

        def send(size: int) -> httpx.Response:
            return client.post("/v1/files", data={"purpose": "vision"}, files={"file": ("a", bytes(size))})

        kept = send(200_000).json()["id"]
        for _ in range(2):
            answer = send(400_000)
            problem(answer, 503, "disk_full")
            assert int(answer.headers["retry-after"]) <= 120
            assert stored(roles.folder / "storage") == [kept]
        assert ids(client.get("/v1/files")) == [kept]
        full = send(4_000_000)  # not even the temporary folder takes it
        problem(full, 503, "disk_full")
        assert "TMPDIR" in full.json()["detail"]
        assert send(200_000).status_code == 200


@pytest.mark.usefixtures("spool")
def test_an_upload_without_redis_is_not_half_there(private_redis: RedisServer, root: Path) -> None:
    with ServedApp(private_redis.url, storage_url=str(root)) as served_app:
        upload = upload_with(served_app.client)
        kept = upload().json()["id"]
        private_redis.stop()
        problem(upload(), 503, "redis_unavailable")
        assert stored(root) == [kept]
        private_redis.start()
        wait_until(lambda: served_app.client.get("/v1/files").status_code == 200, message="Redis is not seen again")
        large = {"file": ("a.jsonl", LINES + bytes(2_000_000))}
        request = served_app.client.build_request("POST", "/v1/files", data={"purpose": "batch"}, files=large)
        body = request.read()

        def interrupted() -> Iterator[bytes]:
            yield body[:-10]
            wait_until(spooled, message="the upload has not begun")
            private_redis.stop()
            yield body[-10:]

        kind = {"content-type": request.headers["content-type"]}
        problem(served_app.client.post("/v1/files", content=interrupted(), headers=kind), 503, "redis_unavailable")
        private_redis.start()
        wait_until(lambda: served_app.client.get("/v1/files").status_code == 200, message="Redis is not seen again")
        assert ids(served_app.client.get("/v1/files")) == [kept]
    assert stored(root) == [kept]


@pytest.mark.usefixtures("spool")
def test_a_caller_who_hangs_up_leaves_nothing(app: ServedApp, client: httpx.Client, root: Path) -> None:
    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: multipart/form-data; boundary=b\r\ncontent-length: 9999999\r\n\r\n"
    )
    begun = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + bytes(4_000_000)
    with socket.create_connection(("127.0.0.1", app.port)) as caller:
        caller.sendall(head + begun)
        wait_until(spooled, message="the upload has not begun")
    wait_until(lambda: not spooled(), message="the unfinished upload was not removed")
    assert stored(root) == []
    assert ids(client.get("/v1/files")) == []


@pytest.mark.usefixtures("spool")
def test_bytes_are_on_their_way_to_the_disk_while_more_come(app: ServedApp, root: Path) -> None:
    """A slow upload of 20 MB is never held in memory: what came is in the file, but for the first and some buffers."""
    piece, pieces = 1_000_000, 20

    def on_disk(least: int) -> bool:
        return spooled() >= least

    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: multipart/form-data; boundary=b\r\ntransfer-encoding: chunked\r\n\r\n"
    )

    def chunk(data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data)

    with socket.create_connection(("127.0.0.1", app.port)) as caller:
        caller.sendall(head + chunk(b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'))
        for number in range(1, pieces + 1):
            caller.sendall(chunk(bytes(piece)))
            least = number * piece - 200_000 if number > 1 else 0
            wait_until(partial(on_disk, least), message="bytes are held back")
        caller.sendall(chunk(b'\r\n--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nvision\r\n--b--\r\n'))
        caller.sendall(b"0\r\n\r\n")
        assert b"HTTP/1.1 200" in caller.recv(100)
    (stored_file,) = (root / ANONYMOUS).iterdir()
    assert stored_file.stat().st_size == piece * pieces


def test_an_upload_that_the_storage_takes_slowly_keeps_its_place(
    upload: Upload, client: httpx.Client, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.services.files._RENEW_S", 0.01)
    real = os.fsync
    renewals: list[float] = []

    def end() -> float:
        """When the record of what is uploaded would end."""
        ends = cast("list[tuple[bytes, float]]", redis_client.zrange("eq:ends", 0, -1, withscores=True))
        return next(score for name, score in ends if name.startswith(b"file:"))

    def fsync(descriptor: int) -> None:
        while len(renewals) < 3:
            renewals.append(end())
            wait_until(lambda: end() > renewals[-1], message="its end is put off")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    answer = upload()
    assert (answer.status_code, len(renewals)) == (200, 3)
    assert client.get(f"/v1/files/{answer.json()['id']}/content").content == LINES


def test_uploads_at_the_same_time(upload: Upload, client: httpx.Client) -> None:
    contents = [bytes([number]) * 300_000 for number in range(8)]
    answers: dict[int, str] = {}

    def send(number: int) -> None:
        answers[number] = upload(contents[number], purpose="vision").json()["id"]

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [client.get(f"/v1/files/{answers[number]}/content").content for number in range(8)] == contents


def test_files_survive_the_web_tier(roles: Roles) -> None:
    first = roles.api()
    with first.client() as client:
        file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", LINES)}).json()
    first.kill()
    second = roles.api()
    with second.client() as client:
        assert client.get(f"/v1/files/{file['id']}/content").content == LINES
    assert [path.name for path in (roles.folder / ".embedq" / "storage" / ANONYMOUS).iterdir()] == [file["id"]]
