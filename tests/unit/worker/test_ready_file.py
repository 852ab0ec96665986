"""The files that a worker leaves for probes."""

import shutil
from pathlib import Path

import pytest

from tasks.worker.process.ready_file import RunFolder


def test_what_somebody_cleans_away_is_made_again(tmp_path: Path) -> None:
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


def test_a_folder_in_which_nothing_can_be_written_ends_no_worker(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.take()
    folder.touch_alive()
    (tmp_path / "run" / "ready.new").mkdir()
    folder.set_ready({"model": "m"})
    assert not folder.is_ready()
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").write_bytes(b"")
    folder.touch_alive()
    folder.keep_ready()


def test_the_next_worker_of_a_folder_has_the_id_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    first = RunFolder(tmp_path)
    worker = first.take()
    with pytest.raises(OSError, match="another worker"):
        RunFolder(tmp_path).take()
    first.leave()
    assert RunFolder(tmp_path).take() == worker
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "worker", tmp_path / "copy" / "worker")
    assert RunFolder(tmp_path / "copy").take() != worker, "a copy of the folder on another machine"
