"""Spreadsheets: sheets as tables, values as people see them, what is said to be missing, and what is refused."""

import struct
import zipfile
from collections.abc import Callable
from io import BytesIO

import pytest

from tasks.ingestion.parsing.spreadsheet import read_spreadsheet
from tests.document_files import archive as zipped
from tests.unit.ingestion.parsing.files import RELATIONS, compound_file, damaged, outcome, relations, warnings

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STYLES = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 22, 46))


def xlsx(
    *sheets: str, merged: str = "", extra: dict[str, str | bytes] | None = None, folder: str = "worksheets"
) -> bytes:
    """A workbook of sheets with these rows, A & 1, A & 2, …; those behind the first are hidden."""
    order = range(1, len(sheets) + 1)
    states = ["visible", *["veryHidden"] * len(sheets)]
    names = (f'name="A &amp; {n}" sheetId="{n}" state="{states[n - 1]}" r:id="worksheet{n}"' for n in order)
    entries = "".join(f"<sheet {name}/>" for name in names)
    parts = {f"worksheet{n}": f"{folder}/{n}.xml" for n in order}
    members: dict[str, str | bytes] = {
        "_rels/.rels": relations(officeDocument="xl/workbook.xml"),
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{entries}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations(styles="styles.xml", **parts),
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs count="4">{STYLES}</cellXfs></styleSheet>',
    }
    for number in order:
        rows = f"<sheetData>{sheets[number - 1]}</sheetData>{merged}"
        members[f"xl/{folder}/{number}.xml"] = f'<worksheet xmlns="{MAIN}">{rows}</worksheet>'
    return zipped(members | (extra or {}))


def row(number: int, **cells: str) -> str:
    texts = (f'<c r="{at}{number}" t="inlineStr"><is><t>{text}</t></is></c>' for at, text in cells.items())
    return f'<row r="{number}">{"".join(texts)}</row>'


def ods(
    *rows: str, manifest: str = '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
) -> bytes:
    names = " ".join(f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in ("office", "table", "text"))
    table = f'<table:table table:name="Terms">{"".join(f"<table:table-row>{row}</table:table-row>" for row in rows)}'
    content = f"<office:document-content {names}><office:body><office:spreadsheet>{table}</table:table>"
    kind, end = "application/vnd.oasis.opendocument.spreadsheet", "</office:spreadsheet></office:body>"
    content += f"{end}</office:document-content>"
    return zipped({"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content})


def cell(text: str, more: str = "") -> str:
    return f'<table:table-cell office:value-type="string">{more}<text:p>{text}</text:p></table:table-cell>'


def record(kind: int, data: bytes) -> bytes:
    return struct.pack("<2H", kind, len(data)) + data


def xls(*, locked: bool = False) -> bytes:
    begin, end = struct.pack("<2H12x", 0x0600, 0x0005), record(0x0A, b"")
    first = record(0x809, begin) + (record(0x2F, struct.pack("<3H16x", 1, 1, 1)) if locked else b"")
    sheet = record(0x809, struct.pack("<2H12x", 0x0600, 0x0010))
    sheet += record(0x203, struct.pack("<3Hd", 0, 0, 0, 12.5)) + end
    bound = b"\0\0\x06\0Prices"
    at = len(first) + 8 + len(bound) + len(end)
    return compound_file({"Workbook": first + record(0x85, struct.pack("<I", at) + bound) + end + sheet})


GOOD = xlsx(row(3, B="I|", D="Price") + row(4) + row(5, B="Tea", D="3"), row(1), row(1, A="a") + row(2, A="b\nc"))
MERGED = "<mergeCells><mergeCell ref='A1:B1'/></mergeCells>"
VALUES = {
    "><v>1</v>": "1",
    "><v>0.30000000000000004</v>": "0.3",
    " s='2'><v>45413.5</v>": "2024-05-01 12:00:00",
    " s='3'><v>1.5</v>": "36:00:00",
    " t='str'><f>A2</f><v>cached</v>": "cached",
}
CELLS = "".join(f"<row r='{n}'><c r='A{n}'{markup}</c></row>" for n, markup in enumerate(VALUES, 2))
REPEATED = '<table:table-cell table:number-columns-repeated="16384"/>'


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (GOOD, "## A & 1\n\n| I\\| | Price |\n| --- | --- |\n| Tea | 3 |\n\n## A & 3\n\n| a |\n| --- |\n| b c |"),
        (xlsx(row(1, A="a") + row(2, A="b", B="c"), merged=MERGED), "## A & 1\n\n| a |  |\n| --- | --- |\n| b | c |"),
        (xlsx(row(1, A="x") + CELLS), "## A & 1\n\n| x |\n| --- |\n" + "\n".join(f"| {v} |" for v in VALUES.values())),
        (
            ods(cell("a") + cell("b"), cell("c") + cell("d"), REPEATED),
            "## Terms\n\n| a | b |\n| --- | --- |\n| c | d |",
        ),
        (xls(), "## Prices\n\n12.5"),
        (xlsx(row(1)), "<no_text>"),
        (xls(locked=True), "<password_protected>"),
        (compound_file({"EncryptedPackage": b"x"}), "<password_protected>"),
        (ods(manifest="<m><encryption-data/></m>"), "<password_protected>"),
        (xlsx("<row"), "<corrupt_document>"),
    ],
)
def test_a_file(data: bytes, expected: str) -> None:
    assert outcome(read_spreadsheet, data) == expected


def test_what_is_left_out_is_said() -> None:
    for formula, said in (
        ("<f>1</f>", 1),
        ("<f>1</f><v />", 1),
        ('<f t="shared" si="0"/>', 1),
        ("<f>1</f><v>2</v>", 0),
    ):
        found = read_spreadsheet(xlsx(row(1, A="Sum") + f'<row r="2"><c r="A2">{formula}</c></row>'))
        assert [warning.code for warning in found.warnings] == ["uncalculated_formulas"] * said
    drawn = "<xdr:sp><xdr:txBody><a:p>{}</a:p></xdr:txBody></xdr:sp>"
    parts: dict[str, str | bytes] = {
        "xl/comments1.xml": "<comments><commentList><comment ref='A1'/><comment ref='A2'/></commentList></comments>",
        "xl/threadedComments/threadedComment1.xml": "<ThreadedComments><threadedComment ref='A1'/></ThreadedComments>",
        "xl/drawings/drawing1.xml": f"<x>{drawn.format('<a:t>box</a:t><a:t>more</a:t>')}{drawn.format('')}</x>",
        "xl/charts/chart1.xml": "<c:chartSpace><c:plotArea/></c:chartSpace>",
        "xl/charts/style1.xml": "<cs:chartStyle/>",
    }
    assert warnings(read_spreadsheet(xlsx(row(1, A="x"), extra=parts))) == [
        ("charts_left_out", "Not read: chart (1)"),
        ("unread_parts", "Not read: comment (2), text on a drawing (1)"),
    ]
    noted = ods(cell("a", "<office:annotation><text:p>c</text:p></office:annotation>"))
    assert warnings(read_spreadsheet(noted)) == [("unread_parts", "Not read: comment (1)")]


def same_sheet_often() -> bytes:
    """More sheets than parts are allowed, all of them one member."""
    with zipfile.ZipFile(BytesIO(xlsx(row(1, A="x")))) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    more = "".join(f'<sheet name="n{number}" sheetId="{number + 9}" r:id="worksheet1"/>' for number in range(10_001))
    members["xl/workbook.xml"] = members["xl/workbook.xml"].replace("</sheets>", f"{more}</sheets>")
    return zipped(members)


@pytest.mark.parametrize(
    "make",
    [
        lambda: zipped({"xl/workbook.xml": b" " * (20 * 2**20)}),
        lambda: xlsx(row(1, A="first") + row(1_048_576, XFD="last")),
        lambda: xlsx(row(1, A="first") + row(1_048_576, XFD="last"), folder="pages"),
        same_sheet_often,
        lambda: xlsx("".join(row(number, A=f"{number}{'word ' * 6000}") for number in range(1, 701))),
    ],
    ids=["bomb", "cells far apart", "where no sheets usually lie", "many sheets", "long"],
)
def test_too_large(make: Callable[[], bytes]) -> None:
    assert outcome(read_spreadsheet, make()) == "<document_too_large>"


def test_damage_anywhere_is_a_refusal_in_our_words() -> None:
    outcomes = {outcome(read_spreadsheet, each)[:5] for each in damaged(GOOD)}
    assert outcomes <= {"## A ", "<corr", "<no_t", "<pass", "<docu"}
