"""Storage: what is written is there whole or not at all, whatever the place; vectors in it; buckets that fail."""

import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tasks.errors import DiskFull, NotStored, StorageUnavailable
from tasks.item import Vector
from tasks.storage.bucket import Bucket
from tasks.storage.folder import LocalFolder
from tasks.storage.storage import Storage, Stored
from tasks.storage.vectors_file import VectorsReference, VectorsWriter, read_vectors
from tests.cloud_server import ACCOUNT, KEY, CloudServer
from tests.s3_server import KEY_ID, SECRET, S3Server
from tests.source_tree import CHECKOUT

BYTES = bytes(range(256))


@pytest.fixture(params=["file://", "memory://", "s3://", "gs://", "az://"])
def url(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server, cloud: CloudServer) -> str:
    if request.param == "s3://":
        return f"{s3.bucket()}/a/prefix"
    ours = {"file://": f"file://{tmp_path}/a%20b", "memory://": f"memory://{secrets.token_hex(4)}"}
    return ours.get(request.param, f"{request.param}one/a/prefix/")


@pytest.fixture
def storage(url: str) -> Storage:
    return Storage.open(url)


def names(storage: Storage, folder: str) -> list[str]:
    return sorted(stored.name for stored in storage.stored(folder))


def test_what_was_written_is_read(storage: Storage, url: str) -> None:
    with storage.writing("files/a") as writer:
        writer.write(BYTES[:100])
        writer.write(BYTES[100:])
        assert writer.size_bytes == 256
    for first, size, expected in (
        (0, None, BYTES),
        (10, 20, BYTES[10:30]),
        (250, 100, BYTES[250:]),
        (1000, 1, b""),
    ):
        assert storage.read("files/a", first, size) == expected
        assert b"".join(storage.chunks("files/a", first, size, chunk_bytes=7)) == expected
    (found,) = storage.stored("files")
    assert found == Stored("files/a", 256, found.modified_ms)
    assert 1_700_000_000_000 < found.modified_ms < 10_000_000_000_000

    other = Storage.open(url)
    other.write("batches/b/parts/c.1", b"")
    assert (storage.read("batches/b/parts/c.1"), storage.read("batches/b/parts/c.1", 0, 10)) == (b"", b"")
    other.write("files/a", b"xx")
    assert (storage.size_bytes("batches/b/parts/c.1"), storage.size_bytes("files/a")) == (0, 2)

    piece, moved = BYTES * 4096, list[int]()  # in all larger than what a bucket takes in one piece
    with storage.reporting(lambda: moved.append(1)).writing("large") as writer:
        for _ in range(12):
            writer.write(piece)
    assert storage.size_bytes("large") == 12 * 2**20
    assert storage.read("large", 11 * 2**20 - 3, 10) == piece[-3:] + piece[:7]
    assert all(chunk == piece for chunk in storage.chunks("large"))
    assert len(moved) >= 10 or not url.startswith(("s3", "gs", "az"))


def test_nothing_is_visible_before_the_end(storage: Storage) -> None:
    with storage.writing("files/a") as writer:
        writer.write(BYTES)
        assert names(storage, "files") == []
        with pytest.raises(NotStored):
            storage.read("files/a")
    assert names(storage, "files") == ["files/a"]
    for name in ("files/new", "files/a"):
        with pytest.raises(KeyError), storage.writing(name) as writer:  # noqa: PT012 - the writing is the point
            writer.write(BYTES[:9])
            raise KeyError
    assert (names(storage, "files"), storage.read("files/a")) == (["files/a"], BYTES)
    for ask in (storage.read, storage.size_bytes, lambda name: next(storage.chunks(name))):
        for name in ("nothing", "files/nothing", "no/folder/either"):
            with pytest.raises(NotStored):
                ask(name)
    assert list(storage.stored("nothing")) == []


def test_deleting_removes_and_forgives(storage: Storage) -> None:
    some = [f"batches/b/parts/{n}" for n in range(5)]
    for name in (*some, "batches/b/kept", "batches/bb/index", "files/a"):
        storage.write(name, b"x")

    def go_on() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        storage.delete_all(["batches/b/kept"], go_on)
    storage.delete(some[1])  # by somebody else
    storage.delete_all(some)
    assert names(storage, "batches") == ["batches/b/kept", "batches/bb/index"]
    for name in ("batches/b/", "batches/b/", "batches/b", "files/a", "files/a"):  # not by the beginning of a name
        storage.delete(name)
    assert (names(storage, "batches"), names(storage, "files")) == (["batches/bb/index"], [])


def test_a_name_cannot_lead_elsewhere() -> None:
    storage = Storage.open("memory://names")
    odd = ["", "/", "/etc/passwd", "../x", "a/../b", "a//b", "./a", ".incoming/a", "a/.b", "A", "a b", "a\\b", "a\n"]
    uses = (storage.read, storage.size_bytes, storage.delete, storage.chunks, lambda n: storage.write(n, b""))
    for name in odd:
        for use in (*uses, lambda n: storage.delete_all([n])):
            with pytest.raises(ValueError, match="not a name"):
                use(name)


def test_only_places_that_can_be_used_are_opened() -> None:
    for url in ("ftp://host/x", "nonsense://", "s3://", "gs:///", "/dev/null/below"):
        with pytest.raises(StorageUnavailable, match="EMBEDQ_STORAGE_URL"):
            Storage.open(url)
    for url, path in (("file:///a%20b", Path("/a b")), ("/a/b", Path("/a/b")), ("s3://bucket/a", None)):
        assert LocalFolder.path_of(url) == path


def test_a_missing_driver_names_its_install_command() -> None:
    script = (
        "import sys; sys.modules['obstore'] = None\nfrom tasks.storage.storage import Storage\nStorage.open('s3://b')"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert 'pip install "embedq[buckets]"' in done.stderr


VECTORS = "anonymous/batch_1/vectors.a"


def test_a_part_with_more_numbers_or_fewer_is_damaged() -> None:
    storage = Storage.open("memory://damaged")
    for second in (4, 8):
        with storage.writing(VECTORS) as file:
            vectors = [Vector(np.ones(number, "<f4"), 1, truncated=False) for number in (4, second)]
            VectorsWriter(VECTORS, file.write, "r1").add(vectors)
        data = storage.read(VECTORS)
        for damaged in (data[:-4], data + bytes(4)):
            storage.write(VECTORS, damaged)
            with pytest.raises(NotStored):
                read_vectors(storage, VectorsReference(VECTORS, 0, len(damaged), "r1"))


MIB = 2**20
CALLS: dict[str, Callable[[Storage], object]] = {
    "read": lambda storage: storage.read("files/a"),
    "write much": lambda storage: storage.write("files/a", bytes(9 * MIB)),
    "delete below": lambda storage: storage.delete("files/"),
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
        (tmp_path / "own").write_text(f"[ops]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "own"))
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


def test_no_answer_is_waited_for_twice_and_no_longer(mute: socket.socket) -> None:
    for name, asked in (("read", 2), ("delete", 1)):
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
        ("gs://one", (403, "SignatureDoesNotMatch"), "credentials (GOOGLE_APPLICATION_CREDENTIALS)"),
        ("gs://one", (403, "AccessDenied"), "denies access"),
        ("gs://one", (404, "NoSuchBucket"), "no such bucket"),
        ("az://one", (403, "AuthenticationFailed"), "credentials (AZURE_STORAGE_ACCOUNT_NAME, AZURE_"),
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
