"""Tables in text: encodings, delimiters, headers, quotes, and what is wrong in them."""

from typing import Any

import pytest

from tests.unit.ingestion.sources.reading import fetched, outcome, read, table, uploaded

JAPANESE = [["id", "text"], ["1", "日本語の文章です。表示する能力を確認します。"], ["2", "改行\nと、「引用」ソ表"]]
NAMED = {"fields": {"text": "text, long", "id": "Name, first"}}
LONG = b"x" * 5000


def test_tables_in_many_encodings() -> None:
    for encoding in ("utf-16-le", "utf-16", "utf-32", "shift_jis", "euc_jp"):
        assert read({"a.csv": table(JAPANESE, encoding)}) == dict(JAPANESE[1:])


def test_delimiters_are_told_from_the_header() -> None:
    for delimiter in ",;\t|":
        data = table([["id", "text"], ["1", "a,b;c\td|e"]], delimiter=delimiter)
        assert read({"a.csv": data}) == {"1": "a,b;c\td|e"}


@pytest.mark.parametrize(
    ("data", "spec", "expected"),
    [
        (b"id,text\r\r\n1,hello\r\r\n2,world\r\r\n", {}, {"1": "hello", "2": "world"}),
        (b"id,text\r1,a\n2,b\r\n3,c\r\r\n4,d", {}, {"1": "a", "2": "b", "3": "c", "4": "d"}),
        (b"\xef\xbb\xbfsep=;\r\nid;text\r\n1;x\r\n", {}, {"1": "x"}),
        (b'"Name, first";"text, long"\nn;The text\n', NAMED, {"n": "The text"}),
        (b"text;\nHello, all;\n", {}, {"a.csv#1": "Hello, all"}),
        (b"id,text\n1.0,a\n2.5,c\n01.0,d\n", {}, {"1": "a", "2.5": "c", "01": "d"}),
        (b'id, text\n1, "a b"\n2, "c, d"\n3,   e\n', {}, {"1": "a b", "2": "c, d", "3": "e"}),
        (b"id,text\r\n1,a\r\n,\r\n2,b\r\n,\r\n , \r\n", {}, {"1": "a", "2": "b"}),
        (b',,\nid,text,\n"",,\n1,a,\n,,\n', {}, {"1": "a"}),
        # What is wrong in a row costs that row.
        (
            b'\nid,text,more\r\n1,a,\r\n\r\n2,b\r\n3,c,d,e\r\n4\r\n5,"x""y\r\nz",w\r\n',
            {},
            {"1": "a", "2": "b", "a.csv#3": "<malformed_record>", "4": "<missing_field>", "5": 'x"y\nz'},
        ),
        (b'id,text\n1,a\n2,"open\n3,b\n4,c\n', {}, {"1": "a", "a.csv#2": "<malformed_record>", "3": "b", "4": "c"}),
        (b'id,text\n1,"say \\"hi, all\\" twice"\n2,"fine"\n', {}, {"a.csv#1": "<malformed_record>", "2": "fine"}),
        (table([["id", "text"], ["1", "ä" * 12]]) + b"3,\xff\n", {}, {"1": "ä" * 12, "3": "<invalid_encoding>"}),
        *((table([["id", "text"], ["1", "a"], ["2", "b"]], wide)[:-1], {}, {"1": "a", "2": "<invalid_encoding>"})
          for wide in ("utf-16", "utf-32")),
        (b"", {}, {"a.csv": "<empty_document>"}),
        (b"1,first text\n2,second\n", {}, {"a.csv": "<missing_field>"}),
        (b"\xff\xfe\0\0id,text\n1,a\n", {}, {"a.csv": "<invalid_encoding>"}),  # begins like UTF-32
    ],
)  # fmt: skip
def test_dialects_and_faults(data: bytes, spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert read({"a.csv": data}, **spec) == expected


def test_a_table_whose_first_umlaut_comes_late() -> None:
    """What tells the encoding of others is ASCII. In UTF-8 one broken byte spoils its row still."""
    for rows, expected in (
        ('Müller\n"a\nGröße"\n“x” €\n'.encode("cp1252"), ["Müller", "a\nGröße", "“x” €"]),
        ("größer\n".encode() + b"gr\xf6\xdfer \xc3\xbc\nplain\n", ["größer", "<invalid_encoding>", "plain"]),
    ):
        assert [*read({"a.csv": b"text\n" + b"plain text\n" * 7000 + rows}).values()][7000:] == expected


def test_what_cannot_be_used_says_why() -> None:
    for data, said in {
        b"Report of May\n\nid,text\n1,a\n": "delete what is above it, such as a title",
        b'"Report, of May";;\r\nby me;;\r\nid;text;\r\n1;a;\r\n': "delete what is above it, such as a title",
        b"id,text,text\n1,a,b\n": "Columns 2 and 3 have the same name",
        b"id,text,n,n\n1,a,b,c\n": "Columns 3 and 4 have the same name",
        b'id,"text\n1,a\n': "never closed",
        b'text\n"say \\"hi, there\\" twice"\n': 'Write it as ""',
    }.items():
        [fault] = fetched({"files": ["a.csv"], "fields": {"metadata": "*"}}, uploaded({"a.csv": data}))
        assert said in (fault.error.message if fault.error else "")
        assert fault.ref.part == "*"


@pytest.mark.parametrize("block", [64, 2**18])
def test_a_line_that_is_too_long_costs_itself_alone(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("tasks.ingestion.sources.ranges._BLOCK_BYTES", block)
    wide = f"id,text\n1,a\n2,{LONG.decode()}\n3,c\n".encode("utf-16")
    lines = b'{"id":1,"text":"a"}\n{"id":2,"text":"' + LONG + b'"}\n{"id":3,"text":"c"}\n'
    for name, data in (("a.csv", b"id,text\n1,a\n2," + LONG + b"\n3,c\n"), ("a.csv", wide), ("a.jsonl", lines)):
        assert read({name: data}, limit=2000) == {"1": "a", f"{name}#2": "<document_too_large>", "3": "c"}
    row = b'id,text\n1,"' + b"x" * 1500 + b"\n" + b"y" * 400 + b'",' + b"z" * 200 + b"\n2,b\n"
    assert read({"a.csv": row}, limit=2000)["a.csv#1"] == "<document_too_large>"
    data = b'id,text\n1,a\n2,"' + b"open\n" * 1000 + b"3,c\n"
    found = [outcome(one) for one in fetched({"files": ["a.csv"]}, uploaded({"a.csv": data}, limit=2000))]
    assert (found[:2], found[-1], len(found)) == (["a", "<malformed_record>"], "c", 1002)
