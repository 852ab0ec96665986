"""Storage in a folder: on the disk before it is done, full disks, disks that are away, what dead writers left."""

import contextlib
import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stack.testing import PATIENCE_S
from tasks.errors import DiskFull, NotStored, StorageUnavailable
from tasks.storage.folder import INCOMING
from tasks.storage.storage import Storage
from tests.source_tree import CHECKOUT

BYTES = bytes(range(256))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def local(root: Path) -> Storage:
    return Storage.open(str(root))


def unfinished(root: Path) -> list[str]:
    return [path.name for path in (root / INCOMING).iterdir()]


def test_a_folder_is_made_for_its_owner_only(root: Path, local: Storage) -> None:
    local.write("files/a", BYTES)

    assert root.stat().st_mode & 0o777 == 0o700
    assert (root / "files").stat().st_mode & 0o777 == 0o700
    assert (root / "files/a").stat().st_mode & 0o777 == 0o600


def test_file_and_folder_are_on_the_disk_before_it_is_done(local: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    local.write("files/a", BYTES)
    assert [Path(path).name for path in synced if INCOMING not in path] == ["root", "files"]
    assert [path for path in synced if INCOMING in path] == synced[:1]


def test_of_many_who_create_a_name_one_succeeds(local: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda n: local.create("catalogs/a/1.json", b"%d" % n), range(8)))
    assert sum(created) == 1
    assert local.read("catalogs/a/1.json") == b"%d" % created.index(True)


def test_a_folder_is_removed_while_somebody_else_removes_it(
    local: Storage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        local.write(f"batches/one/{name}", BYTES)
    real = os.unlink

    def unlink(path: str, **where: int) -> None:
        for another in {"a", "b", "c"} - {path}:
            with contextlib.suppress(FileNotFoundError):
                real(root / "batches/one" / another)
        real(path, **where)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        local.delete("batches/one/")
    assert not (root / "batches/one").exists()
    local.delete("batches/one/")


def test_a_full_disk_is_told_apart_and_leaves_nothing(
    root: Path, local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(DiskFull) as caught:
        local.write("files/a", BYTES)
    assert str(root) not in caught.value.detail
    assert unfinished(root) == []
    with pytest.raises(NotStored):
        local.read("files/a")


def test_a_write_over_the_limit_of_the_system_is_a_full_disk(root: Path) -> None:
    # A real refusal by the kernel, in a process of its own: RLIMIT_FSIZE makes a write fail with EFBIG.
    script = f"""
import resource, signal, sys
from tasks.errors import DiskFull
from tasks.storage.storage import Storage
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
storage = Storage.open({str(root)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with storage.writing("files/a") as writer:
        for _ in range(20):
            writer.write(bytes(10_000))
except DiskFull:
    sys.exit(7)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, check=False, timeout=PATIENCE_S)
    assert done.returncode == 7
    assert unfinished(root) == []
    assert not (root / "files" / "a").exists()


@pytest.mark.parametrize("mount_point_stays", [False, True])
def test_a_folder_that_vanished_is_not_made_anew(root: Path, local: Storage, *, mount_point_stays: bool) -> None:
    local.write("files/a", BYTES)
    away = root.rename(root.with_name("away"))
    if mount_point_stays:
        root.mkdir()

    for ask in (
        local.read,
        local.size_bytes,
        local.delete,
        lambda n: next(local.chunks(n)),
        lambda n: local.write(n, b""),
    ):
        with pytest.raises(StorageUnavailable) as caught:
            ask("files/a")
        assert "EMBEDQ_STORAGE_URL" in caught.value.detail
    with pytest.raises(StorageUnavailable):
        list(local.stored("files"))
    assert root.exists() == mount_point_stays
    if mount_point_stays:
        assert list(root.iterdir()) == []
        root.rmdir()

    away.rename(root)
    assert local.read("files/a") == BYTES
    local.write("files/b", BYTES)


def test_what_died_while_writing_is_discarded_when_it_is_old(root: Path, local: Storage) -> None:
    (root / INCOMING / "new").write_bytes(BYTES)
    (root / INCOMING / "old").write_bytes(BYTES)
    os.utime(root / INCOMING / "old", (0, 0))

    assert local.discard_unfinished(3600) == 1
    assert unfinished(root) == ["new"]


def test_the_last_part_of_a_batch_takes_its_folders_along(root: Path, local: Storage) -> None:
    for name in ("batches/a/parts/1", "batches/a/parts/2", "batches/b/parts/1", "batches/b/index", "files/a"):
        local.write(name, BYTES)
    local.delete("batches/a/parts/1")
    assert (root / "batches/a/parts").is_dir()
    for name in ("batches/a/parts/2", "batches/b/parts/1", "files/a"):
        local.delete(name)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("[!.]*")) == [
        "batches",
        "batches/b",
        "batches/b/index",
        "files",
    ]


def test_a_folder_that_vanishes_before_the_rename_is_made_again(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.mkdir
    lost: list[Path] = []

    def mkdir(path: Path, mode: int = 0o777) -> None:
        if path.name == "parts" and not lost:
            lost.append(path)
            path.parent.rmdir()  # as whoever deletes the last part does
        real(path, mode)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    local.write("batches/a/parts/1", BYTES)
    assert lost
    assert local.read("batches/a/parts/1") == BYTES


def test_what_dead_writers_left_goes_although_some_of_it_stays(
    root: Path, local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        (root / INCOMING / f"{n}").write_bytes(BYTES)
    (stuck, *_) = unfinished(root)
    real = Path.unlink

    def unlink(path: Path) -> None:
        if path.name == stuck:
            raise PermissionError(errno.EPERM, "no")
        real(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(StorageUnavailable):
        local.discard_unfinished(-5)
    assert unfinished(root) == [stuck]
