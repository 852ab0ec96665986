"""A bucket that is not there, refuses, is full or does not answer: said in a line that names the setting, and soon."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from stack.testing import PATIENCE_S
from tasks.errors import DiskFull, StorageUnavailable
from tasks.storage.bucket import BucketLimits, ObjectStore
from tasks.storage.storage import Storage
from tests.s3_server import KEY_ID, SECRET, S3Server
from tests.source_tree import CHECKOUT

CALLS: dict[str, Callable[[Storage], object]] = {
    "read": lambda storage: storage.read("files/a"),
    "a part": lambda storage: storage.read("files/a", 1, 2),
    "size": lambda storage: storage.size_bytes("files/a"),
    "chunks": lambda storage: next(storage.chunks("files/a")),
    "write": lambda storage: storage.write("files/a", b"x"),
    "delete": lambda storage: storage.delete("files/a"),
    "delete below": lambda storage: storage.delete("files/"),
    "list": lambda storage: list(storage.stored("files")),
}


@pytest.fixture(params=CALLS.values(), ids=list(CALLS))
def call(request: pytest.FixtureRequest) -> Callable[[Storage], object]:
    found: Callable[[Storage], object] = request.param
    return found


def refusal(call: Callable[[Storage], object], storage: Storage) -> str:
    """What a caller is told."""
    with pytest.raises(StorageUnavailable) as caught:
        call(storage)
    detail = caught.value.detail
    assert "EMBEDQ_STORAGE_URL" in detail
    assert caught.value.retry_after_s is not None
    for secret in (KEY_ID, SECRET, "the-bucket", "Traceback"):
        assert secret not in detail
    return detail


def test_a_bucket_that_is_not_there(s3: S3Server, call: Callable[[Storage], object]) -> None:
    assert "no such bucket" in refusal(call, Storage.open("s3://the-bucket-that-is-not"))


def test_credentials_that_are_wrong(s3: S3Server, call: Callable[[Storage], object]) -> None:
    storage = Storage.open(s3.bucket())
    s3.check_credentials(really=True)
    try:
        detail = refusal(call, storage)
    finally:
        s3.check_credentials(really=False)
    # A HEAD has no body that could say more than 403.
    assert "AWS_ACCESS_KEY_ID" in detail or "denies access" in detail


def test_credentials_that_are_missing(
    s3: S3Server, call: Callable[[Storage], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "there are none" in refusal(call, Storage.open(s3.bucket()))


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


@pytest.mark.parametrize("name", [name for name in CALLS if name != "write"])
def test_no_answer_is_waited_for_twice_and_no_longer(mute: Mute, name: str) -> None:
    storage = Storage(ObjectStore.open("s3://the-bucket", BucketLimits(read_s=0.5)))
    assert "cannot be reached in time" in refusal(CALLS[name], storage)
    assert len(mute.taken) == 2


@pytest.mark.parametrize("size_bytes", [1, 15 * 2**20, 40 * 2**20])
def test_an_upload_that_nobody_takes_ends(mute: Mute, size_bytes: int) -> None:
    """The driver waits for leave to send, and then for the peer to take the bytes, without any limit of its own."""
    limits = BucketLimits(read_s=0.5, stalled_s=1, slowest_bytes_per_s=2**40)
    storage = Storage(ObjectStore.open("s3://the-bucket", limits))
    detail = refusal(lambda target: target.write("files/a", bytes(size_bytes)), storage)
    assert "cannot be reached in time" in detail


def test_a_url_without_a_bucket() -> None:
    with pytest.raises(StorageUnavailable, match="names no bucket"):
        Storage.open("s3://")


def test_an_object_is_not_found_by_the_beginning_of_its_name(s3: S3Server) -> None:
    storage = Storage.open(s3.bucket())
    storage.write("batches/b/index", b"x")
    storage.write("batches/bb", b"x")
    storage.delete("batches/b")
    assert sorted(stored.name for stored in storage.stored("batches")) == ["batches/b/index", "batches/bb"]


def test_deleting_that_the_driver_keeps_quiet_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """s3fs leaves out of its answer what the bucket did not let it remove, and raises nothing."""
    storage = Storage.open("memory://quiet")
    storage.write("batches/b/index", b"x")
    monkeypatch.setattr(MemoryFileSystem, "rm", lambda *_, **__: [])
    with pytest.raises(StorageUnavailable, match="EMBEDQ_STORAGE_URL"):
        storage.delete("batches/b/")


# ---- the spool -------------------------------------------------------------------------------------------------------

SPOOL = """
import resource, signal, sys
from tasks.errors import DiskFull
from tasks.storage.storage import Storage
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
storage = Storage.open("memory://x")
storage.write("kept", b"kept")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for pieces in ([bytes(10_000)] * 20, [bytes(99_999), b"12"]):  # refused by a write, and by the flush at the end
    try:
        with storage.writing("new") as writer:
            for piece in pieces:
                writer.write(piece)
    except DiskFull as error:
        print(error.detail)
assert [stored.name for folder in ("kept", "new") for stored in storage.stored(folder)] == ["kept"]
"""


def test_a_full_temporary_folder_is_a_full_disk(tmp_path: Path) -> None:
    # A real refusal by the kernel, in a process of its own: RLIMIT_FSIZE makes a write fail with EFBIG.
    done = subprocess.run(
        [sys.executable, "-c", SPOOL], cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("TMPDIR") == 2
    assert str(tmp_path) not in done.stdout


def test_the_spool_is_in_the_temporary_folder_and_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    storage = Storage.open("memory://spooled")
    with storage.writing("a") as writer:
        writer.write(bytes(100_000))
        assert list(tmp_path.iterdir()) == []
    assert storage.size_bytes("a") == 100_000

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageUnavailable, match="TMPDIR") as caught:
        storage.write("a", b"")
    assert str(tmp_path) not in caught.value.detail
    assert not isinstance(caught.value, DiskFull)
