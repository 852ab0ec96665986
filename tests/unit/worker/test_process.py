"""Parent and child of a worker: what is said of a death, who hangs, files for probes, and the stored tokenizer."""

import logging
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from billiard.exceptions import WorkerLostError

from tasks.encoder.fake import FakeEncoder
from tasks.errors import StorageUnavailable
from tasks.storage.model_files import has_model_files
from tasks.storage.storage import Storage
from tasks.worker.process.hangs import LEAST_CHECKS, HangWatch
from tasks.worker.process.parent import Deaths
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage
from tasks.worker.tokenizer_store import keep_tokenizer_stored
from tests.processes import wait_until

KILLED = "signal 9 (SIGKILL)"
PATIENCE_S = 120.0
PART_S = PATIENCE_S / LEAST_CHECKS


def test_a_death_is_one_error_with_the_tasks_in_hand(caplog: pytest.LogCaptureFixture) -> None:
    shared = SharedPage.make()
    deaths, logger = Deaths(shared), logging.getLogger("test.of.deaths")
    logger.addFilter(deaths)
    shared.loaded = 1
    shared.work_on(0, ["task_1", "task_2"])
    logger.error("Process %r pid:%r exited with %r", "ForkPoolWorker-3", 3770, KILLED)
    logger.error("Task handler raised error: %r", "lost", exc_info=WorkerLostError("lost"))
    logger.removeFilter(deaths)
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == (
        "ERROR",
        "worker process died (signal 9, SIGKILL) while it worked on task_1, task_2; its texts are tried again alone",
    )
    assert (shared.loaded, shared.in_hand()) == (0, ())
    ids = [f"task_{number:026}" for number in range(1000)]
    shared.work_on(0, ids)
    assert set(shared.in_hand()) < set(ids), "those for which there is no room are left out whole"


def test_a_child_hangs_when_its_count_stands_still_and_not_while_it_loads_or_both_pause() -> None:
    now, shared = [0.0], SharedPage.make()
    watch = HangWatch(lambda: shared.beats or None, PATIENCE_S, lambda: now[0])

    def hangs(seconds: float, often: int = 1) -> bool:
        said = False
        for _ in range(often):
            now[0] += seconds
            said = watch()
        return said

    assert not hangs(PATIENCE_S, often=12)
    for _ in range(12):
        shared.beats += 1
        assert not watch()
        assert not hangs(10 * PATIENCE_S), "the child had no time to beat"
    shared.beats += 1
    assert not watch()
    assert not hangs(PART_S, often=LEAST_CHECKS - 1)
    assert hangs(PART_S)
    shared.forget_child()
    assert not watch(), "the next child loads its model"


def test_what_somebody_cleans_away_is_made_again_and_a_copy_elsewhere_is_another_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    worker = folder.take()
    folder.set_ready({"model": "m"})
    folder.touch_alive()
    shutil.rmtree(tmp_path / "run")
    assert not folder.is_alive(30)
    folder.keep_ready()
    folder.touch_alive()
    folder.keep_ready()
    assert (folder.is_alive(30), folder.is_ready()) == (True, True)
    folder.leave()
    assert RunFolder(tmp_path / "run").take() == worker
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert RunFolder(tmp_path / "copy").take() != worker
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_bytes(b"")  # nothing can be written: that ends no worker
    folder.touch_alive()
    folder.keep_ready()


def test_a_tokenizer_is_stored_once_the_storage_is_there_and_whenever_it_vanishes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tries, stopped = iter(range(10**9)), threading.Event()

    def late() -> Storage:
        if next(tries) < 4:
            raise StorageUnavailable("away", retry_after_s=1)
        return Storage.open(str(tmp_path))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(keep_tokenizer_stored, late, FakeEncoder(), stopped, check_every_s=0.001)
        try:
            for n in range(3):
                wait_until(lambda: has_model_files(Storage.open(str(tmp_path)), "fake"))
                (tmp_path / "models").rename(tmp_path / f"gone-{n}")
        finally:
            stopped.set()
    assert running.result(30) is None
    assert [record.message for record in caplog.records] == ["ingestions wait for the tokenizer to be stored: away"]
