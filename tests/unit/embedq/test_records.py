"""Reading texts from files."""

import pytest

from embedq.errors import BadInputError
from embedq.records import Record, format_from_name, read_records


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.txt", "lines"), ("a.jsonl", "jsonl"), ("A.NDJSON", "jsonl"), ("-", "lines"), ("a.json", "lines")],
)
def test_format_by_name(name: str, form: str) -> None:
    assert format_from_name(name) == form


def test_lines() -> None:
    raw = [b"\xef\xbb\xbffirst\r\n", b"\n", b"  indented \n", b"\t\n", "Ä{}".encode()]
    assert list(read_records(raw, "lines")) == [Record(1, "first"), Record(3, "  indented "), Record(5, "Ä{}")]


def test_json_lines() -> None:
    raw = [b'{"text": "a", "id": "x"}\n', b"\n", b'{"input": "b", "id": 7, "more": 1}\n', b'{"text":"c"}']
    assert list(read_records(raw, "jsonl")) == [Record(1, "a", "x"), Record(3, "b", 7), Record(4, "c")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: not JSON"),
        (b'"text"', "must be an object"),
        (b"[1]", "must be an object"),
        (b"{}", "needs a non-empty string"),
        (b'{"text": ""}', "needs a non-empty string"),
        (b'{"text": ["a"]}', "needs a non-empty string"),
        (b'{"text": null, "input": "b"}', "needs a non-empty string"),
        (b'{"text": "a", "id": true}', '"id" must be'),
        (b'{"text": "a", "id": {}}', '"id" must be'),
        (b"[" * 100_000, "not JSON"),
        (b'{"text": "\xff"}', "line 2: not UTF-8 (byte 11)"),
    ],
)
def test_a_bad_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(BadInputError) as raised:
        list(read_records([b'{"text": "fine"}\n', line], "jsonl"))
    assert str(raised.value).startswith("line 2: ")
    assert message in str(raised.value)
