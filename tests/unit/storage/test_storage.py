"""Storage: what is written is there whole or not at all, whatever the place."""

import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.errors import NotStored, StorageUnavailable
from tasks.storage.folder import LocalFolder
from tasks.storage.storage import Storage, Stored
from tests.s3_server import S3Server
from tests.source_tree import CHECKOUT

BYTES = bytes(range(256))


@pytest.fixture(params=["file://", "path", "memory://", "s3://", "gs://", "az://"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3://":
        server: S3Server = request.getfixturevalue("s3")
        return f"{server.bucket()}/a/prefix"
    if request.param in {"gs://", "az://"}:
        request.getfixturevalue("cloud")
        return f"{request.param}one/a/prefix/"
    urls = {
        "file://": f"file://{tmp_path}/a%20b",
        "path": f"{tmp_path}/a b",
        "memory://": f"memory://{secrets.token_hex(4)}",
    }
    return urls[request.param]


@pytest.fixture
def storage(url: str) -> Storage:
    return Storage.open(url)


def names(storage: Storage, folder: str) -> list[str]:
    return sorted(stored.name for stored in storage.stored(folder))


def test_what_was_written_is_read(storage: Storage) -> None:
    with storage.writing("files/a") as writer:
        writer.write(BYTES[:100])
        writer.write(BYTES[100:])
        assert writer.size_bytes == 256
    storage.write("batches/b/parts/c.1", b"")

    assert storage.read("files/a") == BYTES
    assert storage.size_bytes("files/a") == 256
    assert storage.read("batches/b/parts/c.1") == b""
    assert storage.size_bytes("batches/b/parts/c.1") == 0


def test_a_part_is_read(storage: Storage) -> None:
    storage.write("a", BYTES)
    storage.write("empty", b"")
    for first, size, expected in (
        (0, None, BYTES),
        (0, 1, BYTES[:1]),
        (0, 0, b""),
        (10, 20, BYTES[10:30]),
        (250, 100, BYTES[250:]),
        (255, None, BYTES[255:]),
        (256, None, b""),
        (1000, 1, b""),
    ):
        assert storage.read("a", first, size) == expected
        assert b"".join(storage.chunks("a", first, size, chunk_bytes=7)) == expected
    assert storage.read("empty", 0, 10) == b""


def test_what_others_write_and_delete_is_seen(storage: Storage, url: str) -> None:
    other = Storage.open(url)
    assert names(storage, "files") == []
    other.write("files/a", b"x")
    assert names(storage, "files") == ["files/a"]
    assert storage.size_bytes("files/a") == 1
    other.write("files/a", b"xx")
    other.write("files/b", b"")
    assert (names(storage, "files"), storage.size_bytes("files/a")) == (["files/a", "files/b"], 2)
    other.delete("files/")
    assert names(storage, "files") == []


def test_a_large_object_is_whole(storage: Storage) -> None:
    """Larger than what a bucket takes in one piece."""
    piece = bytes(range(256)) * 4096
    with storage.writing("a") as writer:
        for _ in range(12):
            writer.write(piece)

    assert storage.size_bytes("a") == 12 * 2**20
    assert storage.read("a", 11 * 2**20 - 3, 10) == piece[-3:] + piece[:7]
    assert all(chunk == piece for chunk in storage.chunks("a"))


def test_nothing_is_visible_before_the_end(storage: Storage) -> None:
    with storage.writing("files/a") as writer:
        writer.write(BYTES)
        assert names(storage, "files") == []
        with pytest.raises(NotStored):
            storage.read("files/a")
    assert names(storage, "files") == ["files/a"]


def test_nothing_is_left_after_an_exception(storage: Storage) -> None:
    storage.write("old", b"old")
    for name in ("new", "old"):
        with pytest.raises(KeyError), storage.writing(name) as writer:  # noqa: PT012 - the writing is the point
            writer.write(BYTES)
            raise KeyError

    assert storage.read("old") == b"old"
    with pytest.raises(NotStored):
        storage.read("new")


def test_what_is_not_there_says_so(storage: Storage) -> None:
    storage.write("files/a", b"x")
    for ask in (storage.read, storage.size_bytes, lambda name: next(storage.chunks(name))):
        for name in ("nothing", "files/nothing", "no/folder/either"):
            with pytest.raises(NotStored):
                ask(name)


def test_deleting_removes_and_forgives(storage: Storage) -> None:
    for name in ("batches/b/index", "batches/b/parts/1", "batches/bb/index", "files/a"):
        storage.write(name, b"x")

    storage.delete("batches/b/")
    storage.delete("batches/b/")
    assert names(storage, "batches") == ["batches/bb/index"]

    storage.delete("batches/b")  # not by the beginning of a name
    assert names(storage, "batches") == ["batches/bb/index"]

    storage.delete("files/a")
    storage.delete("files/a")
    assert names(storage, "files") == []


def test_deleting_many_forgives_and_may_be_ended_before_any(storage: Storage) -> None:
    some = [f"batches/b/{n}" for n in range(5)]
    for name in (*some, "batches/b/kept"):
        storage.write(name, b"x")
    storage.delete(some[1])  # by somebody else
    storage.delete_all(some)
    assert names(storage, "batches") == ["batches/b/kept"]

    def go_on() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        storage.delete_all(["batches/b/kept"], go_on)
    assert names(storage, "batches") == ["batches/b/kept"]


def test_stored_objects_have_size_and_time(storage: Storage) -> None:
    storage.write("files/a", BYTES)
    storage.write("other/b", b"")

    (found,) = storage.stored("files")
    assert found == Stored("files/a", 256, found.modified_ms)
    assert 1_700_000_000_000 < found.modified_ms < 10_000_000_000_000
    assert list(storage.stored("nothing")) == []


@pytest.mark.parametrize("url", ["memory://names"])
def test_a_name_cannot_lead_elsewhere(storage: Storage) -> None:
    odd = [
        "",
        "/",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "./a",
        ".incoming/a",
        "a/.b",
        "A",
        "a b",
        "a\\b",
        "a\n",
        "é",
    ]
    for name in odd:
        for use in (
            storage.read,
            storage.size_bytes,
            storage.delete,
            storage.chunks,
            lambda n: storage.write(n, b""),
            lambda n: storage.delete_all([n]),
        ):
            with pytest.raises(ValueError, match="not a name"):
                use(name)


def test_a_folder_that_cannot_be_made_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageUnavailable, match="EMBEDQ_STORAGE_URL"):
        Storage.open(str(tmp_path / "file" / "below"))


@pytest.mark.parametrize("url", ["ftp://host/x", "http://host/x", "nonsense://", "s3://", "gs:///", "az://"])
def test_only_known_places_are_opened(url: str) -> None:
    with pytest.raises(StorageUnavailable, match=re.escape("EMBEDQ_STORAGE_URL")):
        Storage.open(url)


def test_a_missing_driver_names_its_install_command() -> None:
    script = (
        "import sys; sys.modules['obstore'] = None\nfrom tasks.storage.storage import Storage\nStorage.open('s3://b')"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert 'pip install "embedq[buckets]"' in done.stderr


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///a/b", "/a/b"),
        ("file:///a%20b", "/a b"),
        ("/a/b", "/a/b"),
        ("s3://bucket/a", None),
        ("memory://a", None),
    ],
)
def test_urls_of_folders(url: str, path: str | None) -> None:
    assert LocalFolder.path_of(url) == (None if path is None else Path(path))
