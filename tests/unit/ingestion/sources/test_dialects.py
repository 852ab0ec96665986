"""Files of records as Excel, pandas and others write them: a file, its documents, and what is said of the rest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingestion.sources.formats import files, jsonl, parquet
from tests.unit.ingestion.sources.reading import codes, documents, fetched, texts, uploaded

NAMED = {"fields": {"text": "text, long", "id": "Name, first"}}


@pytest.mark.parametrize(
    ("data", "spec", "expected"),
    [
        (b"id,text\r1,hello\r2,world\r", {}, {"1": "hello", "2": "world"}),
        (b"id,text\r\r\n1,hello\r\r\n2,world\r\r\n", {}, {"1": "hello", "2": "world"}),
        (b"id,text\r1,a\n2,b\r\n3,c\r\r\n4,d", {}, {"1": "a", "2": "b", "3": "c", "4": "d"}),
        ("id,text\r1,x\r".encode("utf-16"), {}, {"1": "x"}),
        (b"\xef\xbb\xbfsep=;\r\nid;text\r\n1;x\r\n", {}, {"1": "x"}),
        (b'"sep=|"\nid|text\n1|a,b;c\n', {}, {"1": "a,b;c"}),
        (b"SEP=\t\r\nid\ttext\r\n1\tx\r\n", {}, {"1": "x"}),
        ("sep=;\r\nid;text\r\n1;Grüße\r\n".encode("utf-16"), {}, {"1": "Grüße"}),
        (b'"Name, first";"text, long"\nn;The text\n', NAMED, {"n": "The text"}),
        (b"text;\nHello, all;\n", {}, {"a.csv#1": "Hello, all"}),
        (b"id,text,Notes,Notes\r\n1,hello,a,b\r\n", {}, {"1": "hello"}),
        (b"id,text,,\r\n1,hello,,\r\n2,x,,,,\r\n", {}, {"1": "hello", "2": "x"}),
        (b" id , text \n1,x\n", {}, {"1": "x"}),
        (b'\xef\xbb\xbf"id","text"\n1,x\n', {}, {"1": "x"}),
        (b"id,text\n1,a\x00b\n", {}, {"1": "ab"}),
        (b"id,text\n1.0,a\n2.0,b\n2.5,c\n01.0,d\n", {}, {"1": "a", "2": "b", "2.5": "c", "01": "d"}),
        (b'id,text\n1,"He said ""hi"""\n', {}, {"1": 'He said "hi"'}),
        (b'id,text\n1,5" pipe\n2,x\n', {}, {"1": '5" pipe', "2": "x"}),
        (b'id, text\n1, "a b"\n2, "c, d"\n3,   e\n', {}, {"1": "a b", "2": "c, d", "3": "e"}),
        (b'id; text\n1; "a;\n b"\n2; "say ""hi"""\n', {}, {"1": "a;\n b", "2": 'say "hi"'}),
        (b'id\ttext\n1\t "a\tb"\n', {}, {"1": "a\tb"}),
        (b'\xef\xbb\xbf"id", "text"\n "1", "a, b"\n', {}, {"1": "a, b"}),
        (b"id,text\r\n1,a\r\n,\r\n2,b\r\n,\r\n , \r\n", {}, {"1": "a", "2": "b"}),
        (b',,\nid,text,\n"",,\n1,a,\n,,\n', {}, {"1": "a"}),
        (b"text;more\na;1\n;\n;;\nb;2\n;\n", {}, {"a.csv#1": "a", "a.csv#2": "b"}),
        ("id\ttext\n\t\n1\ta\n\t\n".encode("utf-16"), {}, {"1": "a"}),
        (b"text\n" + b",\n" * 200_000 + b"a\n", {}, {"a.csv#1": "a"}),
    ],
)
def test_dialects(tmp_path: Path, data: bytes, spec: dict[str, Any], expected: dict[str, str]) -> None:
    access = uploaded(tmp_path, a_csv=data)
    assert texts(files("a_csv", **spec), access) == expected
    assert codes(files("a_csv", **spec), access) == {}


@pytest.mark.parametrize(
    ("data", "spec", "said"),
    [
        (b"Report of May\n\nid,text\n1,a\n", {}, "delete what is above it, such as a title"),
        (b'"Report, of May";;\r\nby me;;\r\nid;text;\r\n1;a;\r\n', {}, "delete what is above it, such as a title"),
        (b"1,a\n2,b\n", {}, "The first line of the file must name its columns"),
        (b"id,text,text\n1,a,b\n", {}, "Columns 2 and 3 have the same name"),
        (b"id,text,n,n\n1,a,b,c\n", {"fields": {"metadata": "*"}}, "Columns 3 and 4 have the same name"),
        (b'id,"text\n1,a\n', {}, "never closed"),
    ],
)
def test_a_header_that_cannot_be_used_says_why(tmp_path: Path, data: bytes, spec: dict[str, Any], said: str) -> None:
    [fault] = fetched(files("a_csv", **spec), uploaded(tmp_path, a_csv=data))
    assert fault.error
    assert said in fault.error.message
    assert fault.ref.part == "*"


def test_backslashes_before_quotes_cost_one_row_and_say_what_to_write(tmp_path: Path) -> None:
    access = uploaded(tmp_path, a_csv=b'id,text\n1,"He said \\"hi, there\\" twice"\n2,"fine"\n3,"after, it"\n')
    assert texts(files("a_csv"), access) == {"2": "fine", "3": "after, it"}
    [fault] = [one for one in fetched(files("a_csv"), access) if one.error]
    assert (fault.ref.id, fault.ref.part) == ("a.csv#1", "*")
    assert fault.error
    assert 'Write it as ""' in fault.error.message


@pytest.mark.parametrize("block", [64, 2**18])
def test_a_line_that_is_too_long_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("tasks.ingestion.sources.ranges._BLOCK_BYTES", block)
    long = b"x" * 5000
    made = {
        "a_csv": b"id,text\n1,a\n2," + long + b"\n3,c\n",
        "b_csv": b'id,text\n1,a\n2,"' + b"open\n" * 1000 + b"3,c\n",
        "c_jsonl": b'{"id":1,"text":"a"}\n{"id":2,"text":"' + long + b'"}\n{"id":3,"text":"c"}\n',
        "d_csv": "id,text\n1,a\n2,".encode("utf-16")
        + long.decode().encode("utf-16-le")
        + "\n3,c\n".encode("utf-16-le"),
    }
    access = uploaded(tmp_path, made, limit=2000)
    for name, bad in (("a_csv", "a.csv#2"), ("c_jsonl", "c.jsonl#2"), ("d_csv", "d.csv#2")):
        assert texts(files(name), access) == {"1": "a", "3": "c"}
        assert codes(files(name), access) == {bad: "document_too_large"}
    lines = uploaded(
        tmp_path, a_csv=b'id,text\n1,"' + b"x" * 1500 + b"\n" + b"y" * 400 + b'",' + b"z" * 200 + b"\n2,b\n"
    )
    assert codes(files("a_csv"), replace(lines, max_record_bytes=2000)) == {"a.csv#1": "document_too_large"}
    found = [one.error.code if one.error else one.text for one in fetched(files("b_csv"), access)]
    assert (found[:2], found[-1], len(found)) == (["a", "malformed_record"], "c", 1002)


def test_what_json_has_no_word_for_is_nothing(tmp_path: Path) -> None:
    data = (
        b'{"id": 1, "text": "ok", "score": NaN}\n{"id": 2, "text": "fine", "score": 1}\n{"id":3,"text":"-Infinity"}\n'
    )
    access = uploaded(
        tmp_path, a_jsonl=data + b'{"id":4,"text":"x","score":[-Infinity]}\n{"text": NaN, "id": 5}\nNaN\n'
    )
    spec = files("a_jsonl", fields={"metadata": "*"})
    assert {ref.id: ref.metadata.get("score") for ref in documents(spec, access)} == {
        "1": None, "2": 1, "3": None, "4": [None], "5": None
    }  # fmt: skip
    assert texts(spec, access)["3"] == "-Infinity"
    assert codes(spec, access) == {"a.jsonl#6": "malformed_record"}


BIG = "123456789012345678901234567890"


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        (BIG, BIG), (f"-{BIG}", f"-{BIG}"), ("12345678901234567890", "12345678901234567890"), ("1", "1"), ("1.0", "1"),
        ("-3.00", "-3"), ("1.5", "1.5"), ("0.1", "0.1"), ('"1.0"', "1.0"), ('"007"', "007"), (f"{BIG}.0", BIG),
    ],
)  # fmt: skip
def test_numbers_as_ids(tmp_path: Path, literal: str, expected: str) -> None:
    access = uploaded(tmp_path, a_jsonl=f'{{"id": {literal}, "text": "x"}}\n'.encode())
    assert texts(files("a_jsonl"), access) == {expected: "x"}


def test_big_ids_do_not_collide_and_the_same_number_is_one_id(tmp_path: Path) -> None:
    data = f'{{"id": {BIG}, "text": "a"}}\n{{"id": {BIG[:-1]}1, "text": "b"}}\n'.encode()
    assert list(texts(files("a_jsonl"), uploaded(tmp_path, a_jsonl=data)).values()) == ["a", "b"]
    rows: list[dict[str, Any]] = [
        {"id": 1.0, "text": "a"},
        {"id": 2.5, "text": "b"},
        {"id": None, "text": "c"},
        {"id": 2.0**60, "text": "d"},
    ]
    access = uploaded(tmp_path, a_parquet=parquet(rows))
    assert list(texts(files("a_parquet"), access)) == ["1", "2.5", "a.parquet#3", str(2.0**60)]


def test_nul_is_left_out_of_texts_and_metadata_and_no_id_has_one(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "r1", "text": "a\0b"},
        {"id": "r2", "text": "fine", "metadata": {"a": "x\0y", "b": "\\u0000", "c": "\\\0", "d": ["\0"]}},
        {"id": "r3\0", "text": "id"},
        {"id": "r4", "text": "\0\0"},
    ]
    for name, data in (("a_jsonl", jsonl(*rows)), ("a_parquet", parquet([rows[0], rows[2], rows[3]]))):
        access = uploaded(tmp_path, {name: data})
        assert texts(files(name), access)["r1"] == "ab"
        assert set(codes(files(name), access).values()) == {"invalid_id", "no_text"}
    [found] = [ref for ref in documents(files("a_jsonl"), uploaded(tmp_path, a_jsonl=jsonl(*rows))) if ref.id == "r2"]
    assert found.metadata == {"a": "xy", "b": "\\u0000", "c": "\\", "d": [""]}


def test_records_with_the_same_id_in_a_page_are_told(tmp_path: Path) -> None:
    found = fetched(files("a_csv"), uploaded(tmp_path, a_csv=b"id,text\n1,a\n1.0,b\n"))
    assert [one.text for one in found] == ["a", None]
    assert found[1].error
    assert "file:a_csv/a.csv#1" in found[1].error.message
