"""What a worker reads from the storage and writes to it: rows, parts, its tokenizer; and how they wait for it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Text
from tasks.errors import StorageUnavailable
from tasks.item import Options, TextError, Vector
from tasks.storage.model_files import has_model_files
from tasks.storage.rows_file import RowsReference, row_of
from tasks.storage.storage import Storage
from tasks.worker.reference import MIN_COSINE, difference
from tasks.worker.rows import LONGEST_PAUSE_S, NO_TROUBLE, TOLD_S, RowStore, row_text
from tasks.worker.tokenizer_store import keep_tokenizer_stored
from tests.ledger_builders import a_model
from tests.processes import wait_until

MODEL = a_model()
REFERENCES = [RowsReference(f"anonymous/batch_{n}/1.rows.0", 0, 9) for n in range(10)]


def test_each_row_has_its_own_options() -> None:
    asked: list[dict[str, Any]] = [{}, {"dimensions": 2}, {"normalize": False}, {"prompt_name": "query"}]
    read = [row_text(row_of(f"text {n}", options, beside=n), MODEL) for n, options in enumerate(asked)]
    assert read == [Text(f"text {n}", Options(**options)) for n, options in enumerate(asked)]
    for row in (b"", b"[]", b'{"text":"a"}', b'{"options":{}}', b'{"text":"a","options":{"x":1}}'):
        assert isinstance(row_text(row, MODEL), TextError)


def test_rows_wait_together_and_longer_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, asked = [100.0], []

    def away() -> Storage:
        asked.append(now[0])
        raise StorageUnavailable("It does not answer.", retry_after_s=10)

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rows = RowStore(away, MODEL, "r1")
    assert rows.trouble == NO_TROUBLE
    for _ in range(400):
        assert [rows.texts(reference, 0, 4) for reference in REFERENCES] == [None] * 10
        now[0] += 0.1
    pauses = np.diff(asked)
    assert pauses[:3] == pytest.approx([1, 2, 4], abs=0.15)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_S, abs=0.15)
    assert caplog.text.count("batches wait: ") == 1
    assert (rows.trouble.code, rows.trouble.detail) == ("storage_unavailable", "It does not answer.")
    now[0] += TOLD_S
    assert rows.trouble == NO_TROUBLE, "others have done these rows meanwhile"


def test_a_part_that_could_be_written_ends_the_wait(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    rows = RowStore(lambda: storage, MODEL, "r1")
    done = [(REFERENCES[0], [Vector(np.ones(2, np.float32), 1, truncated=False)])]
    in_the_way = tmp_path / REFERENCES[0].folder
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_bytes(b"")
    assert rows.write("first", done) == [None]
    assert rows.trouble.code == "storage_unavailable"
    in_the_way.unlink()
    assert rows.write("second", done) != [None]
    assert rows.trouble == NO_TROUBLE


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


OWN = np.array([[1, 0, 0], [0, 2, 0]], dtype=np.float32)


def turned(cosine: float) -> np.ndarray:
    """One of the two vectors is another one."""
    return np.array([OWN[0], [np.sqrt(1 - cosine**2), cosine, 0]])


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        *((OWN, ""), (3 * OWN, ""), (OWN + np.float32(0.01), "")),
        *((turned(c), f"cosine {c:.6f} at worst, needed {MIN_COSINE}") for c in (MIN_COSINE - 0.0001, -1.0)),
        *((np.ones((2, n)), f"they have {n} components, and these 3") for n in (2, 4, 0)),
        (np.full_like(OWN, np.nan), f"cosine nan at worst, needed {MIN_COSINE}"),
    ],
    ids=range(9),
)
def test_when_vectors_under_one_revision_are_others(stored: np.ndarray, told: str) -> None:
    assert difference(OWN, stored.astype("<f4").tobytes()) == told
