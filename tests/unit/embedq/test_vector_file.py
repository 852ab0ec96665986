"""Folders of vectors and texts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from embedq.errors import EmbedqClientError
from embedq.records import Record
from embedq.vector_file import TEXTS, VECTORS, vector_folder


def records(*texts: str) -> list[Record]:
    return [Record(line, text) for line, text in enumerate(texts, start=1)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def vectors(folder: Path) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = np.load(folder / VECTORS, mmap_mode="r")
    return array


def texts(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / TEXTS).read_bytes().splitlines()]


def test_what_was_written_is_read_row_for_row(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    with vector_folder(folder) as writer:
        writer.append(records("a", "b"), np.array([[1, 2], [3, 4]], dtype=np.float32), {})
        writer.append([Record(9, "c\ud800", "id-9")], np.array([[5, 6]], dtype=np.float32), {})
    assert names(folder) == {VECTORS, TEXTS}
    assert vectors(folder).dtype == np.float32
    np.testing.assert_array_equal(vectors(folder), [[1, 2], [3, 4], [5, 6]])
    assert texts(folder)[::2] == [
        {"row": 0, "line": 1, "text": "a"},
        {"row": 2, "line": 9, "text": "c\ud800", "id": "id-9"},
    ]


def test_failed_texts_keep_their_row(tmp_path: Path) -> None:
    nothing = np.empty((2, 0), dtype=np.float32)
    with vector_folder(tmp_path) as writer:
        writer.append(records("a", "b"), nothing, {1: {"code": "input_too_long", "message": "Too long."}})
        writer.append(records("c"), np.array([[1, 2, 3]], dtype=np.float32), {})
        writer.append(records("d", "e"), nothing, {})
    assert vectors(tmp_path).shape == (5, 3)
    assert np.isnan(vectors(tmp_path)[[0, 1, 3, 4]]).all()
    np.testing.assert_array_equal(vectors(tmp_path)[2], [1, 2, 3])
    assert texts(tmp_path)[1]["error"] == {"code": "input_too_long", "message": "Too long."}


def test_many_rows_fit_into_the_header(tmp_path: Path) -> None:
    with vector_folder(tmp_path) as writer:
        for _ in range(3):
            writer.append([], np.ones((40_000, 1), dtype=np.float32), {})
    assert vectors(tmp_path).shape == (120_000, 1)


def test_a_failure_leaves_the_older_collection_alone(tmp_path: Path) -> None:
    with vector_folder(tmp_path) as writer:
        writer.append(records("old"), np.ones((1, 2), dtype=np.float32), {})
    with pytest.raises(EmbedqClientError, match="the model has changed"), vector_folder(tmp_path) as writer:  # noqa: PT012
        writer.append(records("new"), np.ones((1, 2), dtype=np.float32), {})
        writer.append(records("new"), np.ones((1, 3), dtype=np.float32), {})
    assert names(tmp_path) == {VECTORS, TEXTS}
    assert json.loads((tmp_path / TEXTS).read_text())["text"] == "old"
