"""When the storage is asked whether it takes parts again, and with how much; and that a claim waits for it once."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.errors import StorageUnavailable
from tasks.storage.row_file import RowReference
from tasks.storage.storage import Storage
from tasks.storage.write_proof import PROBE_EVERY_S, WriteProof
from tasks.worker.rows import RowStore
from tests.ledger_builders import a_model

A, B = "batches/batch_a", "batches/batch_b"


class Trial:
    """A proof on a clock that stands still, and a storage with a file where parts of A belong.

    Attempts wait in `aside` until they are run.
    """

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.storage = Storage.open(str(folder))
        self.aside: list[Callable[[], None]] = []
        self.proof = WriteProof(lambda: self.storage, lambda: self.now, self.aside.append)
        self.in_the_way = folder / A / "parts"
        self.in_the_way.parent.mkdir(parents=True)
        self.in_the_way.write_bytes(b"")

    def holds(self, folder: str) -> bool:
        """What is known once the attempt that this may have begun is over."""
        known = self.proof.holds(folder)
        return known if known or not self.run() else self.proof.holds(folder)

    def run(self) -> int:
        """Runs what waits; how many attempts."""
        waiting, self.aside[:] = list(self.aside), []
        for attempt in waiting:
            attempt()
        return len(waiting)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_nothing_is_asked_before_anything_failed(trial: Trial) -> None:
    assert trial.holds(A)


def test_one_refusal_makes_every_folder_prove_itself(trial: Trial) -> None:
    trial.proof.missed(A, 1000)
    assert not trial.proof.holds(A)
    assert trial.run() == 0, "it has just failed"
    trial.now += PROBE_EVERY_S
    assert not trial.holds(A)
    assert not trial.proof.holds(A)
    assert trial.run() == 0, "it has just failed again"
    assert trial.holds(B)
    assert list(trial.storage.stored(B)) == [], "the probe is gone"
    trial.now += PROBE_EVERY_S
    trial.in_the_way.unlink()
    assert trial.holds(A)
    assert list(trial.storage.stored(A)) == []
    trial.in_the_way.parent.mkdir(exist_ok=True)
    trial.in_the_way.write_bytes(b"")
    assert trial.holds(A), "nothing is asked any more"


def test_nobody_waits_for_an_attempt_and_a_slow_one_is_followed_by_a_pause(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_name: str, _data: bytes) -> None:
        assert not trial.proof.holds(A)
        trial.now += 13
        raise StorageUnavailable("It does not answer.", retry_after_s=10)

    monkeypatch.setattr(trial.storage, "write", slow)
    trial.proof.missed(A)
    trial.now += PROBE_EVERY_S
    assert [trial.proof.holds(A) for _ in range(3)] == [False] * 3
    assert trial.run() == 1, "one stream has it asked, the others hear what it found"
    assert not trial.proof.holds(A)
    assert trial.run() == 0
    trial.now += PROBE_EVERY_S
    assert not trial.proof.holds(A)
    assert len(trial.aside) == 1


def test_who_may_write_and_not_delete_is_believed(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: str) -> None:
        raise StorageUnavailable("It denies deleting.", retry_after_s=10)

    monkeypatch.setattr(trial.storage, "delete", denied)
    trial.proof.missed(B, 1000)
    trial.now += PROBE_EVERY_S
    assert trial.holds(B)
    assert len(list(trial.storage.stored(B))) == 1, "one probe, and no other"


def test_the_probe_is_as_large_as_what_failed(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = trial.storage.write

    def noted(name: str, data: bytes) -> None:
        sizes.append(len(data))
        write(name, data)

    monkeypatch.setattr(trial.storage, "write", noted)
    trial.proof.missed(A, 123_456)
    assert trial.holds(B)
    assert sizes == [123_456]


class Away:
    """Opens no storage; how often it was asked for one."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> Storage:
        """Raises."""
        self.asked += 1
        raise StorageUnavailable("It does not answer.", retry_after_s=10)


def test_a_claim_waits_for_one_attempt_whatever_its_units() -> None:
    away = Away()
    units = [(n, RowReference("files/f", f"batches/batch_{n}/index.0", 0), 4) for n in range(10)]
    store = RowStore(away, a_model(), "r1")
    assert store.storage_error == ("", 0.0)
    assert list(store.read(units)) == []
    assert away.asked == 1
    code, since = store.storage_error
    assert code == "storage_unavailable"
    assert 0 <= time.time() - since < 60


def test_it_knows_since_when_nothing_was_written(trial: Trial) -> None:
    assert trial.proof.away_since is None
    trial.proof.missed(A, 1000)
    first = trial.proof.away_since
    trial.now += PROBE_EVERY_S
    assert not trial.holds(A), "something is in the way"
    trial.proof.missed(B, 2000)
    assert trial.proof.away_since == first
    trial.now += PROBE_EVERY_S
    assert trial.holds(B)
    assert trial.proof.away_since is None
