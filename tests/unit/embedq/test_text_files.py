"""Texts from files, and folders of texts and vectors."""

import json
from pathlib import Path

import numpy as np
import pytest

from embedq.errors import BadInputError, EmbedqClientError
from embedq.text_files import TEXTS, VECTORS, Record, read_records, vector_folder

BAD: list[tuple[bytes, str]] = [
    (b"{", "not JSON"),
    (b'"text"', "must be an object"),
    (b"{}", "needs a non-empty string"),
    (b'{"text": ""}', "needs a non-empty string"),
    (b'{"text": ["a"]}', "needs a non-empty string"),
    (b'{"text": null, "input": "b"}', "needs a non-empty string"),
    (b'{"text": "a", "id": true}', '"id" must be'),
    (b'{"text": "a", "id": {}}', '"id" must be'),
    (b"[" * 100_000, "not JSON"),
    (b'{"text": "\xff"}', "not UTF-8 (byte 11)"),
]


def records(*texts: str) -> list[Record]:
    return [Record(line, text) for line, text in enumerate(texts, start=1)]


def test_lines_and_json_lines() -> None:
    raw = [b"\xef\xbb\xbffirst\r\n", b"\n", b"  indented \n", b"\t\n", "Ä{}".encode()]
    assert list(read_records(raw)) == [Record(1, "first"), Record(3, "  indented "), Record(5, "Ä{}")]
    raw = [b'{"text": "a", "id": "x"}\n', b"\n", b'{"input": "b", "id": 7, "more": 1}\n', b'{"text":"c"}']
    assert list(read_records(raw, jsonl=True)) == [Record(1, "a", "x"), Record(3, "b", 7), Record(4, "c")]


@pytest.mark.parametrize(("line", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(BadInputError) as raised:
        list(read_records([b'{"text": "fine"}\n', line], jsonl=True))
    assert str(raised.value).startswith("line 2: ")
    assert message in str(raised.value)


def test_a_folder_has_a_row_for_each_text_and_a_failure_leaves_the_older_one_alone(tmp_path: Path) -> None:
    folder, nothing = tmp_path / "made" / "here", np.empty((2, 0), dtype=np.float32)
    with vector_folder(folder) as add:
        add(records("a", "b"), nothing, {1: {"code": "input_too_long", "message": "Too long."}})
        add([Record(9, "c\ud800", "id-9")], np.array([[1, 2, 3]], dtype=np.float32), {})
        add(records("d", "e"), nothing, {})
        add([], np.ones((120_000, 3), dtype=np.float32), {})
    with pytest.raises(EmbedqClientError, match="the model has changed"), vector_folder(folder) as add:  # noqa: PT012
        add(records("new"), np.ones((1, 2), dtype=np.float32), {})
        add(records("new"), np.ones((1, 3), dtype=np.float32), {})
    assert {path.name for path in folder.iterdir()} == {VECTORS, TEXTS}
    vectors = np.load(folder / VECTORS, mmap_mode="r")
    assert (vectors.dtype, vectors.shape) == (np.float32, (120_005, 3))
    assert np.isnan(vectors[[0, 1, 3, 4]]).all()
    np.testing.assert_array_equal(vectors[2], [1, 2, 3])
    texts = [json.loads(line) for line in (folder / TEXTS).read_bytes().splitlines()]
    assert texts[1:3] == [
        {"row": 1, "line": 2, "text": "b", "error": {"code": "input_too_long", "message": "Too long."}},
        {"row": 2, "line": 9, "text": "c\ud800", "id": "id-9"},
    ]
