"""Folders of vectors and texts."""

import json
from pathlib import Path

import numpy as np
import pytest

from embedq.collection import TEXTS, VECTORS, open_collection, writing
from embedq.errors import BadInputError, EmbedqClientError
from embedq.records import Record
from embedq.task import TextError


def records(*texts: str) -> list[Record]:
    return [Record(line, text) for line, text in enumerate(texts, start=1)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_was_written_is_read_row_for_row(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    with writing(folder) as writer:
        writer.append(records("a", "b"), np.array([[1, 2], [3, 4]], dtype=np.float32), {})
        writer.append([Record(9, "c\ud800", "id-9")], np.array([[5, 6]], dtype=np.float32), {})
    assert names(folder) == {VECTORS, TEXTS}
    collection = open_collection(folder)
    assert collection.vectors.dtype == np.float32
    np.testing.assert_array_equal(collection.vectors, [[1, 2], [3, 4], [5, 6]])
    assert collection.rows([2, 0]) == {
        0: {"row": 0, "line": 1, "text": "a"},
        2: {"row": 2, "line": 9, "text": "c\ud800", "id": "id-9"},
    }


def test_failed_texts_keep_their_row(tmp_path: Path) -> None:
    nothing = np.empty((2, 0), dtype=np.float32)
    with writing(tmp_path) as writer:
        writer.append(records("a", "b"), nothing, {1: TextError("input_too_long", "Too long.")})
        writer.append(records("c"), np.array([[1, 2, 3]], dtype=np.float32), {})
        writer.append(records("d", "e"), nothing, {})
    collection = open_collection(tmp_path)
    assert collection.vectors.shape == (5, 3)
    assert np.isnan(collection.vectors[[0, 1, 3, 4]]).all()
    np.testing.assert_array_equal(collection.vectors[2], [1, 2, 3])
    assert collection.rows([1])[1]["error"] == {"code": "input_too_long", "message": "Too long."}


def test_many_rows_fit_into_the_header(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        for _ in range(3):
            writer.append([], np.ones((40_000, 1), dtype=np.float32), {})
    assert open_collection(tmp_path).vectors.shape == (120_000, 1)


def test_nothing_at_all_is_an_empty_collection(tmp_path: Path) -> None:
    with writing(tmp_path):
        pass
    assert open_collection(tmp_path).vectors.shape == (0, 0)


def test_a_failure_leaves_the_older_collection_alone(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.append(records("old"), np.ones((1, 2), dtype=np.float32), {})
    with pytest.raises(EmbedqClientError, match="the model has changed"), writing(tmp_path) as writer:  # noqa: PT012
        writer.append(records("new"), np.ones((1, 2), dtype=np.float32), {})
        writer.append(records("new"), np.ones((1, 3), dtype=np.float32), {})
    assert names(tmp_path) == {VECTORS, TEXTS}
    assert json.loads((tmp_path / TEXTS).read_text())["text"] == "old"


def test_a_bare_array_has_no_texts(tmp_path: Path) -> None:
    np.save(tmp_path / "some.npy", np.ones((2, 2)))
    collection = open_collection(tmp_path / "some.npy")
    assert collection.vectors.shape == (2, 2)
    assert collection.rows([0]) == {}


def test_what_is_no_collection_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("hello")
    np.save(tmp_path / "flat.npy", np.ones(3))
    np.save(tmp_path / "whole.npy", np.ones((2, 2), dtype=np.int64))
    np.save(tmp_path / "objects.npy", np.array([[{}]]), allow_pickle=True)
    for name in ("missing", "text.npy", "flat.npy", "whole.npy", "objects.npy", "."):
        with pytest.raises(BadInputError):
            open_collection(tmp_path / name)
