"""Tables in text: encodings, delimiters, headers, quotes."""

from pathlib import Path

import pytest

from tests.unit.ingestion.sources.formats import files, table
from tests.unit.ingestion.sources.reading import codes, fetched, texts, uploaded

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


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "gb18030"])
@pytest.mark.parametrize("shift", range(4))
def test_a_long_table_is_recognised_wherever_the_sample_of_it_ends(tmp_path: Path, encoding: str, shift: int) -> None:
    rows = [["id", "text"], ["x" * (shift + 1), "x"], *([f"{n}", JAPANESE[1][1]] for n in range(1000))]
    assert texts(files("a_csv"), uploaded(tmp_path, a_csv=table(rows, encoding))) == dict(rows[1:])


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
