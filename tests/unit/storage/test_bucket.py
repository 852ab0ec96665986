"""A bucket that is not there, refuses, is full or does not answer: said in a line that names the setting, and soon."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.errors import DiskFull, StorageUnavailable
from tasks.storage.bucket import Bucket
from tasks.storage.storage import Storage
from tests.cloud_server import ACCOUNT, KEY, CloudServer
from tests.s3_server import KEY_ID, SECRET, S3Server
from tests.thorough import some

MIB = 2**20

CALLS: dict[str, Callable[[Storage], object]] = {
    "read": lambda storage: storage.read("files/a"),
    "a part": lambda storage: storage.read("files/a", 1, 2),
    "size": lambda storage: storage.size_bytes("files/a"),
    "chunks": lambda storage: next(storage.chunks("files/a")),
    "write": lambda storage: storage.write("files/a", b"x"),
    "write much": lambda storage: storage.write("files/a", bytes(9 * MIB)),
    "delete": lambda storage: storage.delete("files/a"),
    "delete below": lambda storage: storage.delete("files/"),
    "list": lambda storage: list(storage.stored("files")),
}


FEW = ("read", "write much", "delete below")
"""Of each way to ask a bucket one."""


@pytest.fixture(params=FEW)
def call(request: pytest.FixtureRequest) -> Callable[[Storage], object]:
    return CALLS[request.param]


def refusal(call: Callable[[Storage], object], storage: Storage) -> str:
    """What a caller is told."""
    with pytest.raises(StorageUnavailable) as caught:
        call(storage)
    detail = caught.value.detail
    assert "EMBEDQ_STORAGE_URL" in detail
    assert caught.value.retry_after_s is not None
    for secret in (KEY_ID, SECRET, KEY, "the-bucket", "http", "Traceback"):
        assert secret not in detail
    assert caught.value.__cause__ is None, "a log would show it"
    return detail


@pytest.mark.parametrize("name", CALLS)
def test_a_bucket_that_is_not_there(s3: S3Server, name: str) -> None:
    assert "no such bucket" in refusal(CALLS[name], Storage.open("s3://the-bucket-that-is-not"))


def test_credentials_that_are_wrong(s3: S3Server, call: Callable[[Storage], object]) -> None:
    storage = Storage.open(s3.bucket())
    s3.check_credentials(really=True)
    try:
        detail = refusal(call, storage)
    finally:
        s3.check_credentials(really=False)
    assert "AWS_ACCESS_KEY_ID" in detail


def test_nobody_listens(s3: S3Server, call: Callable[[Storage], object], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can get the port
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert "AWS_ENDPOINT_URL" in refusal(call, Storage.open("s3://the-bucket"))


class Mute:
    """Takes connections and never says a word. `taken`: how many."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                self.taken.append(self._listening.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for connection in self.taken:
            connection.close()


@pytest.fixture
def mute(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mute]:
    server = Mute()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    yield server
    server.close()


@pytest.mark.parametrize("name", some([name for name in CALLS if name != "write much"], "read", "delete"))
def test_no_answer_is_waited_for_twice_and_no_longer(mute: Mute, name: str) -> None:
    storage = Storage(Bucket.open("s3://the-bucket", read_s=0.5))
    assert "cannot be reached in time" in refusal(CALLS[name], storage)
    assert len(mute.taken) == (1 if name == "delete" else 2)


@pytest.mark.parametrize("size_bytes", some([2 * MIB, 15 * MIB, 40 * MIB], 15 * MIB))
def test_an_upload_that_nobody_takes_ends(mute: Mute, size_bytes: int) -> None:
    storage = Storage(Bucket.open("s3://the-bucket", piece_s=0.5))
    detail = refusal(lambda target: target.write("files/a", bytes(size_bytes)), storage)
    assert "cannot be reached in time" in detail


def test_a_bucket_tells_of_each_piece(s3: S3Server) -> None:
    moved: list[int] = []
    storage = Storage.open(s3.bucket()).reporting(lambda: moved.append(1))
    with storage.writing("files/a") as writer:
        for _ in range(32):
            writer.write(bytes(MIB // 2))
    assert len(moved) >= 16
    assert storage.size_bytes("files/a") == 16 * MIB


# ---- the other clouds


@pytest.mark.parametrize(
    ("url", "refused", "said"),
    [
        ("gs://one", (401, "AuthenticationRequired"), "credentials (GOOGLE_APPLICATION_CREDENTIALS)"),
        ("gs://one", (403, "SignatureDoesNotMatch"), "credentials (GOOGLE_APPLICATION_CREDENTIALS)"),
        ("gs://one", (403, "AccessDenied"), "denies access"),
        ("gs://one", (404, "NoSuchBucket"), "no such bucket"),
        ("az://one", (403, "AuthenticationFailed"), "credentials (AZURE_STORAGE_ACCOUNT_NAME, AZURE_"),
        ("az://one", (403, "AuthorizationPermissionMismatch"), "denies access"),
        ("az://one", (404, "ContainerNotFound"), "no such bucket"),
        ("az://one", (400, "WhatNobodyKnows"), "does not answer or refuses"),
    ],
)
def test_what_other_clouds_refuse(
    cloud: CloudServer, call: Callable[[Storage], object], url: str, refused: tuple[int, str], said: str
) -> None:
    cloud.refusal = refused
    detail = refusal(call, Storage.open(url))
    assert said in detail
    assert ACCOUNT not in detail


@pytest.mark.parametrize("url", ["gs://one", "az://one"])
def test_a_full_cloud_is_a_full_disk(cloud: CloudServer, url: str) -> None:
    cloud.refusal = (507, "InsufficientStorage")
    with pytest.raises(DiskFull, match="EMBEDQ_STORAGE_URL"):
        Storage.open(url).write("files/a", b"x")


# ---- what the driver lacks or does


def test_a_profile(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, text = s3.bucket(), f"[ops]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "credentials").write_text(text)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "ops")
    Storage.open(storage).write("files/a", b"x")
    monkeypatch.setenv("AWS_PROFILE", "another")
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID"):
        Storage.open(storage).write("files/a", b"x")


def test_an_authority_that_cannot_be_read(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(StorageUnavailable, match="AWS_CA_BUNDLE"):
        Storage.open("s3://the-bucket")


def test_deleting_that_is_not_done_is_said(cloud: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.open("gs://one")
    storage.write("batches/b/index", b"x")
    monkeypatch.setattr("obstore.delete", lambda *_: None)
    with pytest.raises(StorageUnavailable, match="denies deleting"):
        storage.delete("batches/b/")
