"""Spreadsheets: sheets as tables, values as people see them, what is said to be missing, and what is refused."""

import struct
import zipfile
from collections.abc import Callable
from io import BytesIO

import pytest

from tasks.ingestion.parsing.spreadsheet import read_spreadsheet
from tests.document_files import archive as zipped
from tests.unit.ingestion.parsing.files import compound_file, damaged, outcome, warnings

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
STYLES = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 22, 46))


def xlsx(sheets: dict[str, str], *, extra: dict[str, str | bytes] | None = None) -> bytes:
    """A workbook whose sheets have this content; those behind the first are hidden."""
    numbered = dict(enumerate(sheets.items(), 1))
    entries = "".join(
        f'<sheet name="{name}" sheetId="{n}" state="{"visible" if n == 1 else "veryHidden"}" r:id="r{n}"/>'
        for n, (name, _) in numbered.items()
    )
    relations = "".join(
        f'<Relationship Id="r{n}" Type="{RELATIONS}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n in numbered
    )
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="a" '
        f'Type="{RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{entries}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{relations}'
        f'<Relationship Id="s" Type="{RELATIONS}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs count="4">{STYLES}</cellXfs></styleSheet>',
    }
    for number, (_, content) in numbered.items():
        members[f"xl/worksheets/sheet{number}.xml"] = f'<worksheet xmlns="{MAIN}">{content}</worksheet>'
    return zipped(members | (extra or {}))


def rows(*rows: str) -> str:
    return f"<sheetData>{''.join(rows)}</sheetData>"


def row(number: int, **cells: str) -> str:
    """Cells of text, by their column."""
    texts = (f'<c r="{at}{number}" t="inlineStr"><is><t>{text}</t></is></c>' for at, text in cells.items())
    return f'<row r="{number}">{"".join(texts)}</row>'


def ods(body: str, extra: dict[str, str | bytes] | None = None) -> bytes:
    names = " ".join(f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in ("office", "table", "text"))
    content = (
        f"<office:document-content {names}><office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>"
        "</office:document-content>"
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
    return zipped({"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content, **(extra or {})})


def cell(text: str) -> str:
    return f'<table:table-cell office:value-type="string">{text}</table:table-cell>'


def record(kind: int, data: bytes) -> bytes:
    return struct.pack("<2H", kind, len(data)) + data


def xls(*, locked: bool = False) -> bytes:
    """A workbook of Excel 97: one sheet with a number."""
    begin, end = struct.pack("<2H12x", 0x0600, 0x0005), record(0x0A, b"")
    first = record(0x809, begin) + (record(0x2F, struct.pack("<3H16x", 1, 1, 1)) if locked else b"")
    sheet = record(0x809, struct.pack("<2H12x", 0x0600, 0x0010))
    sheet += record(0x203, struct.pack("<3Hd", 0, 0, 0, 12.5)) + end
    bound = b"\0\0\x06\0Prices"
    at = len(first) + 8 + len(bound) + len(end)
    return compound_file({"Workbook": first + record(0x85, struct.pack("<I", at) + bound) + end + sheet})


NAMED = xlsx({
    "A &amp; B": rows(row(3, B="A|", D="Price"), row(4), row(5, B="Tea", D="3")),
    "Empty": rows(row(1)),
    "Hidden": rows(row(1, A="a"), row(2, A="b\nc")),
})  # fmt: skip
MERGED = rows(row(1, A="Both"), row(2, A="left", B="right")) + "<mergeCells><mergeCell ref='A1:B1'/></mergeCells>"
OPEN = ods(
    f'<table:table table:name="Terms"><table:table-row>{cell("<text:p>Item</text:p>")}{cell("<text:p>Days</text:p>")}'
    f'</table:table-row><table:table-row>{cell("<text:p>Tea</text:p>")}<table:table-cell office:value-type="float" '
    'office:value="3"><text:p>3</text:p></table:table-cell></table:table-row><table:table-row '
    'table:number-rows-repeated="1048000"><table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
    "</table:table>"
)
ENCRYPTED = ods("", {"META-INF/manifest.xml": "<m><encryption-data/></m>"})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (NAMED, "## A & B\n\n| A\\| | Price |\n| --- | --- |\n| Tea | 3 |\n\n## Hidden\n\n| a |\n| --- |\n| b c |"),
        (xlsx({"S": MERGED}), "## S\n\n| Both |  |\n| --- | --- |\n| left | right |"),
        (OPEN, "## Terms\n\n| Item | Days |\n| --- | --- |\n| Tea | 3 |"),
        (xls(), "## Prices\n\n12.5"),
        (xlsx({"S": rows(row(1))}), "<no_text>"),
        (xls(locked=True), "<password_protected>"),
        (compound_file({"EncryptedPackage": b"x"}), "<password_protected>"),
        (ENCRYPTED, "<password_protected>"),
        (xlsx({"S": "<sheetData><row"}), "<corrupt_document>"),
    ],
)  # fmt: skip
def test_a_file(data: bytes, expected: str) -> None:
    assert outcome(read_spreadsheet, data) == expected


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("><v>1</v>", "1"),
        ("><v>0.30000000000000004</v>", "0.3"),
        (" s='1'><v>45413</v>", "2024-05-01"),
        (" s='2'><v>45413.5</v>", "2024-05-01 12:00:00"),
        (" s='3'><v>1.5</v>", "36:00:00"),
        (" t='str'><f>A2</f><v>cached</v>", "cached"),
    ],
)
def test_values_are_as_people_see_them(cell: str, shown: str) -> None:
    found = read_spreadsheet(xlsx({"S": rows(f"<row r='1'><c r='A1'{cell}</c></row>")}))
    assert (found.text, found.structure, found.warnings) == (f"## S\n\n{shown}", "markdown", [])


def test_formulas_without_results_are_said() -> None:
    for formula, said in (
        ("<f>1</f>", 1),
        ("<f>1</f><v />", 1),
        ('<f t="shared" si="0"/>', 1),
        ("<f>1</f><v>2</v>", 0),
    ):
        data = xlsx({"S": rows(row(1, A="Sum"), f'<row r="2"><c r="A2">{formula}</c></row>')})
        assert [warning.code for warning in read_spreadsheet(data).warnings] == ["uncalculated_formulas"] * said


def test_what_lies_above_the_cells_is_said() -> None:
    drawn = "<xdr:sp><xdr:txBody><a:p>{}</a:p></xdr:txBody></xdr:sp>"
    parts: dict[str, str | bytes] = {
        "xl/comments1.xml": "<comments><commentList><comment ref='A1'/><comment ref='A2'/></commentList></comments>",
        "xl/threadedComments/threadedComment1.xml": "<ThreadedComments><threadedComment ref='A1'/></ThreadedComments>",
        "xl/drawings/drawing1.xml": f"<x>{drawn.format('<a:t>box</a:t><a:t>more</a:t>')}{drawn.format('')}</x>",
        "xl/charts/chart1.xml": "<c:chartSpace><c:plotArea/></c:chartSpace>",
        "xl/charts/style1.xml": "<cs:chartStyle/>",
    }
    assert warnings(read_spreadsheet(xlsx({"S": rows(row(1, A="x"))}, extra=parts))) == [
        ("charts_left_out", "Not read: chart (1)"),
        ("unread_parts", "Not read: comment (2), text on a drawing (1)"),
    ]
    noted = cell("<office:annotation><text:p>c</text:p></office:annotation><text:p>a</text:p>")
    data = ods(f"<table:table table:name='T'><table:table-row>{noted}</table:table-row></table:table>")
    assert warnings(read_spreadsheet(data)) == [("unread_parts", "Not read: comment (1)")]


def same_sheet_often() -> bytes:
    """More sheets than parts are allowed, all of them one member."""
    data = xlsx({"S": rows(row(1, A="x"))})
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    more = "".join(f'<sheet name="n{number}" sheetId="{number + 9}" r:id="r1"/>' for number in range(10_001))
    members["xl/workbook.xml"] = members["xl/workbook.xml"].replace("</sheets>", f"{more}</sheets>")
    return zipped(members)


@pytest.mark.parametrize(
    "make",
    [
        lambda: zipped({"xl/workbook.xml": b" " * (20 * 2**20)}),
        lambda: xlsx({"S": rows(row(1, A="first"), row(1_048_576, XFD="last"))}),
        same_sheet_often,
        lambda: xlsx({"S": rows(*(row(number, A=f"{number}{'word ' * 6000}") for number in range(1, 701)))}),
    ],
    ids=["bomb", "cells far apart", "many sheets", "long"],
)
def test_too_large(make: Callable[[], bytes]) -> None:
    assert outcome(read_spreadsheet, make()) == "<document_too_large>"


def test_damage_anywhere_is_a_refusal_in_our_words() -> None:
    outcomes = {outcome(read_spreadsheet, each)[:5] for each in damaged(NAMED)}
    assert outcomes <= {"## A ", "## Hi", "<corr", "<no_t", "<pass", "<docu"}
