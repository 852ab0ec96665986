"""A bucket that is not there, refuses, is full or does not answer: said in a line that names the setting, and soon."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.errors import DiskFull, StorageUnavailable
from tasks.storage.bucket import Bucket
from tasks.storage.storage import Storage
from tests.cloud_server import ACCOUNT, KEY, CloudServer
from tests.s3_server import KEY_ID, SECRET, S3Server

MIB = 2**20
CALLS: dict[str, Callable[[Storage], object]] = {
    "read": lambda storage: storage.read("files/a"),
    "write much": lambda storage: storage.write("files/a", bytes(9 * MIB)),
    "delete below": lambda storage: storage.delete("files/"),
    "a part": lambda storage: storage.read("files/a", 1, 2),
    "size": lambda storage: storage.size_bytes("files/a"),
    "chunks": lambda storage: next(storage.chunks("files/a")),
    "write": lambda storage: storage.write("files/a", b"x"),
    "delete": lambda storage: storage.delete("files/a"),
    "list": lambda storage: list(storage.stored("files")),
}
FEW = ("read", "write much", "delete below")
"""Of each way to ask a bucket one."""


def refused(storage: Storage, said: str, *names: str) -> None:
    """What a caller is told, whatever of `CALLS` it asks for."""
    for name in names or FEW:
        with pytest.raises(StorageUnavailable) as caught:
            CALLS[name](storage)
        assert said in caught.value.detail
        assert "EMBEDQ_STORAGE_URL" in caught.value.detail
        assert caught.value.retry_after_s is not None
        for secret in (KEY_ID, SECRET, KEY, ACCOUNT, "the-bucket", "http", "Traceback"):
            assert secret not in caught.value.detail
        assert caught.value.__cause__ is None, "a log would show it"


def test_a_bucket_that_cannot_be_used(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(Storage.open("s3://the-bucket-that-is-not"), "no such bucket", *CALLS)

    url = s3.bucket()
    s3.check_credentials(really=True)
    try:
        refused(Storage.open(url), "AWS_ACCESS_KEY_ID")
    finally:
        s3.check_credentials(really=False)

    with monkeypatch.context() as patch:
        (tmp_path / "credentials").write_text(
            f"[ops]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
        )
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        patch.setenv("AWS_PROFILE", "ops")
        Storage.open(url).write("files/a", b"x")
        patch.setenv("AWS_PROFILE", "another")
        with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID"):
            Storage.open(url)

    with socket.socket() as taken:  # bound and not listening: nobody else can get the port
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        refused(Storage.open("s3://the-bucket"), "AWS_ENDPOINT_URL")

    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(StorageUnavailable, match="AWS_CA_BUNDLE"):
        Storage.open("s3://the-bucket")


@pytest.fixture
def mute(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Lets everybody connect and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        listening.setblocking(False)
        yield listening


@pytest.mark.parametrize(("name", "asked"), [("read", 2), ("delete", 1)])
def test_no_answer_is_waited_for_twice_and_no_longer(mute: socket.socket, name: str, asked: int) -> None:
    refused(Storage(Bucket.open("s3://the-bucket", read_s=0.5)), "cannot be reached in time", name)
    for _ in range(asked):
        mute.accept()[0].close()
    with pytest.raises(BlockingIOError):
        mute.accept()


def test_an_upload_that_nobody_takes_ends(mute: socket.socket) -> None:
    refused(Storage(Bucket.open("s3://the-bucket", piece_s=0.5)), "cannot be reached in time", "write much")
    mute.accept()[0].close()


@pytest.mark.parametrize(
    ("url", "refusal", "said"),
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
def test_what_other_clouds_refuse(cloud: CloudServer, url: str, refusal: tuple[int, str], said: str) -> None:
    cloud.refusal = refusal
    refused(Storage.open(url), said)


def test_a_cloud_that_is_full_or_deletes_nothing(cloud: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage.open("gs://one")
    storage.write("files/a", b"x")
    with monkeypatch.context() as patch:
        patch.setattr("obstore.delete", lambda *_: None)
        refused(storage, "denies deleting", "delete below")
    cloud.refusal = (507, "InsufficientStorage")
    for url in ("gs://one", "az://one"):
        with pytest.raises(DiskFull, match="EMBEDQ_STORAGE_URL"):
            Storage.open(url).write("files/a", b"x")
