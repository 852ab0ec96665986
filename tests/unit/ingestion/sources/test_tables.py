"""Tables in text: encodings, delimiters, headers, quotes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingestion.sources.reading import (
    codes,
    documents,
    fetched,
    files,
    jsonl,
    parquet,
    table,
    texts,
    uploaded,
)

GERMAN = [["id", "text"], ["1", "Größe über alles, schöne Straßen und Häuser"], ["2", 'mit\n"Umbruch", äöü']]
JAPANESE = [["id", "text"], ["1", "日本語の文章です。表示する能力を確認します。"], ["2", "改行\nと、「引用」ソ表"]]


@pytest.mark.parametrize(
    ("rows", "encoding"),
    [(GERMAN, e) for e in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "utf-32")]
    + [(JAPANESE, e) for e in ("utf-8", "utf-16", "shift_jis", "euc_jp")],
)
def test_tables_in_many_encodings(tmp_path: Path, rows: list[list[str]], encoding: str) -> None:
    access = uploaded(tmp_path, a_csv=table(rows, encoding))
    assert texts(files("a_csv"), access) == dict(rows[1:])


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_told_from_the_header(tmp_path: Path, delimiter: str) -> None:
    access = uploaded(tmp_path, a_csv=table([["id", "text"], ["1", "a,b;c\td|e"]], delimiter=delimiter))
    assert texts(files("a_csv"), access) == {"1": "a,b;c\td|e"}


def test_a_table_with_blank_and_short_and_long_rows(tmp_path: Path) -> None:
    data = b'\nid,text,more\r\n1,a,\r\n\r\n2,b\r\n3,c,d,e\r\n4\r\n5,"x""y\r\nz",w\r\n'
    access = uploaded(tmp_path, a_csv=data)
    assert texts(files("a_csv"), access) == {"1": "a", "2": "b", "5": 'x"y\nz'}
    assert codes(files("a_csv"), access) == {"a.csv#3": "malformed_record", "4": "missing_field"}


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path: Path) -> None:
    data = b'id,text\n1,a\n2,"open\n3,b\n4,c\n'
    access = uploaded(tmp_path, a_csv=data)
    assert texts(files("a_csv"), access) == {"1": "a", "3": "b", "4": "c"}
    assert codes(files("a_csv"), access) == {"a.csv#2": "malformed_record"}
    assert texts(files("a_csv"), uploaded(tmp_path, a_csv=data * 1 + b"5," + b"d" * 100 + b"\n", limit=60)) == {
        "1": "a", "3": "b", "4": "c"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_document"),
        (b"\n\n", "empty_document"),
        (b"1,first text\n2,second\n", "missing_field"),
        (b"id,text,text\n1,a,b\n", "invalid_header"),
        (b'id,"text\n1,a', "malformed_record"),
        (b"\xff\xfe\0\0id,text\n1,a\n", "invalid_encoding"),  # begins like UTF-32
    ],
)
def test_a_table_without_a_usable_header_is_one_fault_and_others_go_on(tmp_path: Path, data: bytes, code: str) -> None:
    access = uploaded(tmp_path, a_csv=data, b_csv=b"text\nfine\n")
    assert codes(files("a_csv", "b_csv"), access) == {"a.csv": code}
    assert texts(files("a_csv", "b_csv"), access) == {"b.csv#1": "fine"}


def test_a_broken_byte_in_a_table_spoils_its_row_alone(tmp_path: Path) -> None:
    data = table([*GERMAN, *(["x", "größer"] for _ in range(3))]).replace(b"Umbruch", b"Umbr\xffch")
    access = uploaded(tmp_path, a_csv=data.replace(b"x,", b"3,", 1).replace(b"x,", b"4,", 1).replace(b"x,", b"5,", 1))
    assert texts(files("a_csv"), access) == {"1": GERMAN[1][1], "3": "größer", "4": "größer", "5": "größer"}
    assert codes(files("a_csv"), access) == {"2": "invalid_encoding"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ('Müller\n"a\nGröße"\n“x” €\n'.encode("cp1252"), ["Müller", "a\nGröße", "“x” €"]),
        ("größer\n".encode() + b"gr\xf6\xdfer \xc3\xbc\nplain\n", ["größer", "invalid_encoding", "plain"]),
        (b"\x81\nplain\n", ["invalid_encoding", "plain"]),
    ],
)
def test_a_table_whose_first_umlaut_comes_late(tmp_path: Path, rows: bytes, expected: list[str]) -> None:
    """What tells the encoding of others is ASCII. In UTF-8 one broken byte spoils its row still."""
    access = uploaded(tmp_path, a_csv=b"text\n" + b"plain text\n" * 7000 + rows)
    found = [one.error.code if one.error else one.text for one in fetched(files("a_csv"), access)]
    assert found[7000:] == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_table_that_is_cut_off_in_a_character_loses_its_last_row(tmp_path: Path, encoding: str) -> None:
    access = uploaded(tmp_path, a_csv=table([["id", "text"], ["1", "a"], ["2", "b"]], encoding)[:-1])
    assert texts(files("a_csv"), access) == {"1": "a"}
    assert codes(files("a_csv"), access) == {"2": "invalid_encoding"}


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
