"""Storage in a folder: on the disk before it is done, full disks, disks that are away, what dead writers left."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.errors import StorageUnavailable
from tasks.storage.folder import INCOMING
from tasks.storage.storage import Storage
from tests.processes import PATIENCE_S
from tests.source_tree import CHECKOUT

BYTES = bytes(range(256))
SCANDIR, FSYNC = os.scandir, os.fsync


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def local(root: Path) -> Storage:
    return Storage.open(str(root))


def test_what_is_written_is_its_owner_s_only_and_on_the_disk_before_it_is_done(
    root: Path, local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        FSYNC(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    local.write("files/a", BYTES)
    assert [Path(path).name for path in synced if INCOMING not in path] == ["root", "files"]
    assert [path for path in synced if INCOMING in path] == synced[:1]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (root, root / "files", root / "files/a")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_file_system_without_fsync_of_folders_is_borne(local: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As CIFS and FUSE answer. A file must be on the disk all the same."""
    refused = {stat.S_IFDIR: errno.EINVAL}

    def fsync(descriptor: int) -> None:
        if number := refused.get(stat.S_IFMT(os.fstat(descriptor).st_mode)):
            raise OSError(number, os.strerror(number))
        FSYNC(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for number in (errno.EINVAL, errno.ENOTSUP):
        refused[stat.S_IFDIR] = number
        local.write(f"batches/a/parts/{number}", BYTES)
        assert local.read(f"batches/a/parts/{number}") == BYTES
    refused[stat.S_IFREG] = errno.EINVAL
    with pytest.raises(StorageUnavailable):
        local.write("files/a", BYTES)


def test_a_folder_that_cannot_be_read_is_not_empty(local: Storage, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("batches/one/a", "files/a"):
        local.write(name, BYTES)
    (root / "files" / "lost+found").mkdir()

    def scandir(path: str) -> object:
        if str(path).endswith(("/one", "lost+found")):  # the latter is the file system's own, and root's alone
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return SCANDIR(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for folder in ("", "batches", "batches/one"):
        with pytest.raises(StorageUnavailable):
            list(local.stored(folder))
    assert [stored.name for stored in local.stored("files")] == ["files/a"]
    assert list(local.stored("files/a")) == list(local.stored("nothing")) == []


def test_what_dead_writers_and_the_last_part_of_a_batch_leave_goes(root: Path, local: Storage) -> None:
    for name in ("new", "old"):
        (root / INCOMING / name).write_bytes(BYTES)
    os.utime(root / INCOMING / "old", (0, 0))
    assert local.discard_unfinished(3600) == 1
    assert [path.name for path in (root / INCOMING).iterdir()] == ["new"]

    for name in ("batches/a/parts/1", "batches/a/parts/2", "batches/b/parts/1", "batches/b/index", "files/a"):
        local.write(name, BYTES)
    local.delete("batches/a/parts/1")
    assert (root / "batches/a/parts").is_dir()
    for name in ("batches/a/parts/2", "batches/b/parts/1", "files/a"):
        local.delete(name)
    left = sorted(str(path.relative_to(root)) for path in root.rglob("[!.]*") if INCOMING not in path.parts)
    assert left == ["batches", "batches/b", "batches/b/index", "files"]


AS_USER = """
import os, sys
from tasks.errors import EmbedqError
from tasks.storage.storage import Storage
user, root, *names = sys.argv[1:]
os.umask(0o022)
os.setgroups([7777])
os.setgid(int(user))
os.setuid(int(user))
try:
    storage = Storage.open(root)
    for name in names:
        if name.startswith("-"):
            storage.delete(name[1:])
        else:
            storage.write(name, b"x")
    read = [storage.read(stored.name) for folder in ("files", "batches") for stored in storage.stored(folder)]
    print(len(read), storage.discard_unfinished(-5))
except EmbedqError as error:
    print(error.detail)
"""


def as_user(user: int, root: Path, *names: str) -> str:
    """What a role says that runs as this user, whose own group has the same number, and who is in group 7777."""
    command = [sys.executable, "-c", AS_USER, str(user), str(root), *names]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder that every user can get to: pytest's own ones are for one."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Path(folder, "volume")
        made.mkdir()
        yield made


@pytest.mark.parametrize("inside", ["", "embedq"])
def test_users_of_a_group_share_a_volume(volume: Path, inside: str) -> None:
    os.chown(volume, 0, 7777)
    volume.chmod(0o2770)
    root = volume / inside
    assert as_user(5001, root, "files/a", "batches/one/parts/1") == "2 0"
    assert as_user(5002, root, "files/b", "batches/one/parts/2", "-batches/one/parts/1") == "3 0"
    (root / INCOMING / "dead").write_bytes(b"")
    assert as_user(5001, root, "-batches/one/", "files/b") == "2 1"
    for path in root.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o770 if path.is_dir() else 0o660)


@pytest.mark.parametrize(("mode", "group"), [(0o755, 0), (0o750, 7777)])
def test_users_who_share_nothing_are_told_whose_it_is(volume: Path, mode: int, group: int) -> None:
    os.chown(volume, 5001, group)
    volume.chmod(mode)
    assert as_user(5001, volume, "files/a") == "1 0"
    assert (volume / "files").stat().st_mode & 0o777 == 0o700
    said = as_user(5002, volume, "files/b")
    for words in ("EMBEDQ_STORAGE_URL", f"user 5001's and group {group}'s (mode 0{mode:o})", "as user 5002", "chmod"):
        assert words in said
    assert str(volume) not in said
