"""When the storage is asked whether it takes parts again, and with how much."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.errors import StorageUnavailable
from tasks.ledger.storage import Storage
from tasks.row_probe import PROBE_EVERY_S, WriteProof

A, B = "batches/batch_a", "batches/batch_b"


class Trial:
    """A proof on a clock that stands still, and a storage with a file where parts of A belong."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.storage = Storage.open(str(folder))
        self.proof = WriteProof(lambda: self.now)
        self.in_the_way = folder / A / "parts"
        self.in_the_way.parent.mkdir(parents=True)
        self.in_the_way.write_bytes(b"")

    def holds(self, folder: str) -> bool:
        return self.proof.holds(self.storage, folder)

    def asked(self, call: Callable[[], bool]) -> bool:
        """Whether it wrote; a refusal counts."""
        try:
            call()
        except StorageUnavailable:
            return True
        return False


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_nothing_is_asked_before_anything_failed(trial: Trial) -> None:
    assert trial.holds(A)


def test_one_refusal_makes_every_folder_prove_itself_and_each_claim_asks_once(trial: Trial) -> None:
    trial.proof.missed(A, 1000)
    assert not trial.holds(A), "it has just failed"
    trial.now += PROBE_EVERY_S
    assert [trial.asked(lambda: trial.holds(A)) for _ in range(3)] == [True, False, False]
    assert not trial.holds(A)
    assert trial.holds(B)
    assert list(trial.storage.stored(B)) == [], "the probe is gone"
    trial.now += PROBE_EVERY_S
    trial.in_the_way.unlink()
    assert trial.holds(A)
    assert list(trial.storage.stored(A)) == []
    trial.in_the_way.rmdir()
    trial.in_the_way.write_bytes(b"")
    assert trial.holds(A), "nothing is asked any more"


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
