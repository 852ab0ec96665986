"""A dataset's file under kills, power losses, full disks, forks, and processes that stand still."""

import random
import resource
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from tasks.datasets.loads import DocumentLoad
from tasks.datasets.sqlite import dataset_file, schema
from tasks.datasets.sqlite import load as sqlite_load
from tasks.datasets.sqlite.dataset_file import DatasetFile, require_local
from tasks.datasets.sqlite.load import SqliteStore
from tasks.datasets.sqlite.schema import open_file
from tasks.datasets.sqlite.search import SqliteContents, VectorMemory
from tests.dataset_checks import check_whole
from tests.integration.datasets.loads import document, load, stamp
from tests.processes import wait_until
from tests.raises_code import raises_code
from tests.thorough import some

pytestmark = pytest.mark.faults

PAGES, PAGE = 6, 40
_processes = get_context("fork")


@pytest.fixture
def file(tmp_path: Path) -> DatasetFile:
    return DatasetFile(tmp_path, "me", "docs")


def page(number: int, order: int) -> list[DocumentLoad]:
    """Documents of a page, other ones for each order; a page has its documents in common with all orders."""
    return [document(f"d{number}-{n}", f"{order} {n}", chunks=n % 4, order=order) for n in range(PAGE)]


def load_pages(file: DatasetFile, order: int, pages: int = PAGES) -> Path:
    """Where they are then."""
    store = SqliteStore(file)
    for number in range(pages):
        load(store, *page(number, order), by=stamp(order))
    store.close()
    path = file.path()
    assert path is not None
    return path


def versions(file: DatasetFile) -> dict[int, set[int]]:
    """Of each page the orders of its documents; the file is whole."""
    path = file.path()
    if path is None:
        return {}
    with closing(open_file(path)) as db:
        check_whole(db)
        rows = db.execute(
            "SELECT doc_id, decided, json_extract(metadata, '$.order') FROM documents WHERE content_hash <> ''"
        ).fetchall()
    assert [name for name, decided, order in rows if decided != order] == []
    found: dict[int, set[int]] = {}
    for name, decided, _ in rows:
        found.setdefault(int(name[1 : name.index("-")]), set()).add(decided)
    return found


@pytest.mark.parametrize("seed", some(range(8), 0, 1, 2))
def test_a_killed_load_leaves_nothing_half_done_and_is_repeated(file: DatasetFile, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - repeatable
    path = load_pages(file, 1, 3)

    def begun() -> bool:
        with sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60) as db:
            return db.execute("SELECT 1 FROM documents WHERE decided = 2").fetchone() is not None

    child = _processes.Process(target=load_pages, args=(file, 2), daemon=True)
    child.start()
    wait_until(lambda: begun() or child.exitcode is not None, message="a page of it")
    time.sleep(rng.random() * 0.03)  # anywhere in the pages that follow
    child.kill()
    child.join()
    assert all(len(orders) == 1 for orders in versions(file).values())
    load_pages(file, 2)
    assert versions(file) == {number: {2} for number in range(PAGES)}


def test_a_power_loss_leaves_the_version_before(
    file: DatasetFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = load_pages(file, 1)
    old = path.read_bytes()
    # What is changed goes to the disk at once, as in the middle of a commit.
    monkeypatch.setattr(schema, "_CACHE_KIB", 2 * schema.PAGE_BYTES // 1024)
    monkeypatch.setattr(sqlite_load, "_LOADS_SPILL", True)
    new = journal = b""

    def documents() -> Iterator[DocumentLoad]:
        nonlocal new, journal
        for number in range(PAGES):
            yield from page(number, 2)
        for n in range(256):  # the next lot, before which all that was changed is written
            yield document(f"more{n}", chunks=1)
        new, journal = path.read_bytes(), Path(f"{path}-journal").read_bytes()

    store = SqliteStore(file)
    store.load(documents(), stamp(2), lambda: None)
    store.close()
    assert sum(old[at : at + 512] != new[at : at + 512] for at in range(0, len(old), 512)) > 100

    rng, copy = random.Random(5), DatasetFile(tmp_path / "copy", "me", "docs")  # noqa: S311 - repeatable
    for trial in range(30):
        torn, noted = bytearray(new), journal
        if trial % 3:  # any mixture of old and new sectors, and perhaps a file that has not grown yet
            size, share = rng.choice((512, 4096, schema.PAGE_BYTES)), rng.choice((0.1, 0.5, 0.9))
            for at in range(0, len(old), size):
                if rng.random() < share:
                    torn[at : at + size] = old[at : at + size]
            torn = torn[: rng.choice((len(new), len(old)))]
        else:  # the journal is not whole: then nothing has been written yet
            torn, noted = bytearray(old), journal[: rng.randrange(len(journal))]
            noted += rng.choice((b"", bytes(len(journal) - len(noted))))
        shutil.rmtree(copy.folder, ignore_errors=True)
        copy.folder.mkdir(parents=True)
        (copy.folder / path.name).write_bytes(torn)
        Path(f"{copy.folder / path.name}-journal").write_bytes(noted)
        assert versions(copy) == {number: {1} for number in range(PAGES)}, trial


def test_a_full_disk_fails_a_load_as_a_whole_and_passes(file: DatasetFile) -> None:
    path = load_pages(file, 1)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, size + 50_000))
        with raises_code("sink_unavailable", match="disk"):
            load(SqliteStore(file), *(document(f"x{n}", f"{n}" * 1000) for n in range(200)), by=stamp(2))
        load(SqliteStore(file), document("small"), by=stamp(2))

    child = _processes.Process(target=limited)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert SqliteStore(file).known(["x1", "small"]).keys() == {"small"}
    load(SqliteStore(file), document("x1"), by=stamp(2))
    assert SqliteStore(file).known(["x1"])


def test_a_writer_that_stands_still_is_said_and_readers_go_on(
    file: DatasetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_pages(file, 1)
    inside = _processes.Event()

    def stands_still() -> None:
        def documents() -> Iterator[DocumentLoad]:
            yield from (document(f"x{n}") for n in range(300))
            inside.set()
            signal.pause()

        SqliteStore(file).load(documents(), stamp(2), lambda: None)

    child = _processes.Process(target=stands_still, daemon=True)
    child.start()
    assert inside.wait(60)
    monkeypatch.setattr(dataset_file, "_LOCK_S", 0.2)
    with raises_code("sink_unavailable", match="stands still, restart it"):
        load(SqliteStore(file), document("a"), by=stamp(3))
    contents = SqliteContents(file, VectorMemory(2**20))
    assert len(contents.nearest(np.ones(8), 5, None, lambda: False)) == 5
    child.kill()
    child.join()
    load(SqliteStore(file), document("a"), by=stamp(3))
    assert SqliteStore(file).known(["a", "x1"]).keys() == {"a"}


def test_a_file_system_of_several_machines_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    place = str(folder).replace(" ", "\\040")
    ours = {"ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs"}
    for kind in {"nfs4", "cifs", "fuse.sshfs", "9p", "virtiofs", "ceph", "smb3", "glusterfs"} | ours:
        mounts = f"22 1 254:0 / / rw - ext4 /dev/vda rw\n99 22 0:44 / {place} rw - {kind} x rw\n"
        if kind in ours:
            require_local(folder / "me", mounts)
        else:
            with raises_code("sink_refused", match=f"{kind}.*EMBEDQ_DATASETS"):
                require_local(folder / "me", mounts)
        require_local(tmp_path, mounts)
