"""Rows of a piece: what each asks, and how they wait for a storage that refuses."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.encoder.interface import Text
from tasks.errors import StorageUnavailable
from tasks.item import Options, TextError, Vector
from tasks.storage.rows_file import RowsReference, row_of
from tasks.storage.storage import Storage
from tasks.worker.rows import LONGEST_PAUSE_S, NO_TROUBLE, TOLD_S, RowStore, row_text
from tests.ledger_builders import a_model

MODEL = a_model()


def test_each_row_has_its_own_options() -> None:
    asked: list[dict[str, Any]] = [{}, {}, {"dimensions": 2}, {"normalize": False}, {"prompt_name": "query"}, {}]
    read = [row_text(row_of(f"text {n}", options, beside=n), MODEL) for n, options in enumerate(asked)]
    assert read == [Text(f"text {n}", Options(**options)) for n, options in enumerate(asked)]


@pytest.mark.parametrize(
    "row", [b"", b"[]", b"{}", b'{"text":"a"}', b'{"options":{}}', b'{"text":"a","options":{"x":1}}']
)
def test_what_has_no_text_is_an_error(row: bytes) -> None:
    assert isinstance(row_text(row, MODEL), TextError)


REFERENCES = [RowsReference(f"anonymous/batch_{n}/1.rows.0", 0, 9) for n in range(10)]


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
    code, since, detail = rows.trouble
    assert (code, detail) == ("storage_unavailable", "It does not answer.")
    assert 0 <= time.time() - since < 60
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
