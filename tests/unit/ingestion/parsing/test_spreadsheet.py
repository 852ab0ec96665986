"""Spreadsheets: sheets as tables, values as people see them, and what is refused."""

import struct
import zipfile
from collections.abc import Callable
from io import BytesIO

import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.spreadsheet import read_spreadsheet
from tests.document_files import archive as zipped
from tests.unit.ingestion.parsing.compound_file import compound_file

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_DATE_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><cellXfs count="4"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="22"/>'
    '<xf numFmtId="46"/></cellXfs></styleSheet>'
)


def _xlsx(
    sheets: dict[str, str], *, states: tuple[str, ...] = (), extra: dict[str, str | bytes] | None = None
) -> bytes:
    """A workbook whose sheets have this content."""
    entries, relations, parts = "", "", dict[str, str | bytes]()
    for number, (name, content) in enumerate(sheets.items(), 1):
        state = f' state="{states[number - 1]}"' if states else ""
        entries += f'<sheet name="{name}" sheetId="{number}"{state} r:id="r{number}"/>'
        relations += (
            f'<Relationship Id="r{number}" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet{number}.xml"/>'
        )
        parts[f"xl/worksheets/sheet{number}.xml"] = f'<worksheet xmlns="{_MAIN}">{content}</worksheet>'
    relations += f'<Relationship Id="s" Type="{_RELATIONS}/styles" Target="styles.xml"/>'
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="a" '
            f'Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"><sheets>{entries}</sheets>'
            "</workbook>",
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{relations}'
            "</Relationships>",
            "xl/styles.xml": _DATE_STYLES,
        }
        | parts
        | (extra or {})
    )


def _rows(*rows: str) -> str:
    return f"<sheetData>{''.join(rows)}</sheetData>"


def _row(number: int, **cells: str) -> str:
    """Cells of text, by their column."""
    inside = "".join(
        f'<c r="{column}{number}" t="inlineStr"><is><t>{text}</t></is></c>' for column, text in cells.items()
    )
    return f'<row r="{number}">{inside}</row>'


def _ods(body: str, extra: dict[str, str | bytes] | None = None) -> bytes:
    office = "urn:oasis:names:tc:opendocument:xmlns"
    content = (
        f'<office:document-content xmlns:office="{office}:office:1.0" xmlns:table="{office}:table:1.0" '
        f'xmlns:text="{office}:text:1.0"><office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>'
        "</office:document-content>"
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = f'<manifest:manifest xmlns:manifest="{office}:manifest:1.0"/>'
    return zipped({"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content, **(extra or {})})


def _record(kind: int, data: bytes) -> bytes:
    return struct.pack("<2H", kind, len(data)) + data


def _xls(*, locked: bool = False) -> bytes:
    """A workbook of Excel 97: one sheet with a number."""
    begin, end = struct.pack("<2H12x", 0x0600, 0x0005), _record(0x0A, b"")
    first = _record(0x809, begin) + (_record(0x2F, struct.pack("<3H16x", 1, 1, 1)) if locked else b"")
    sheet = _record(0x809, struct.pack("<2H12x", 0x0600, 0x0010))
    sheet += _record(0x203, struct.pack("<3Hd", 0, 0, 0, 12.5)) + end
    bound = struct.pack("<H2BB", 0, 0, 0, 6) + b"\x00" + b"Prices"
    at = len(first) + 4 + 4 + len(bound) + len(end)
    book = first + _record(0x85, struct.pack("<I", at) + bound[2:]) + end
    return compound_file({"Workbook": book.ljust(at, b"\0") + sheet})


def _code(data: bytes) -> str:
    with pytest.raises(DocumentFailed) as failed:
        read_spreadsheet(data)
    return failed.value.error.code


def test_each_sheet_is_a_heading_and_a_table_hidden_ones_too() -> None:
    data = _xlsx(
        {
            "Prices &amp; terms": _rows(_row(3, B="Item", D="Price"), _row(4), _row(5, B="Tea | green", D="three")),
            "Empty": _rows(_row(1)),
            "Hidden": _rows(_row(1, A="kept"), _row(2, A="two\nlines")),
        },
        states=("visible", "visible", "veryHidden"),
    )
    assert read_spreadsheet(data).text == (
        "## Prices & terms\n\n| Item | Price |\n| --- | --- |\n| Tea \\| green | three |\n\n"
        "## Hidden\n\n| kept |\n| --- |\n| two lines |"
    )
    assert read_spreadsheet(data).structure == "markdown"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("<c r='A1'><v>1</v></c>", "1"),
        ("<c r='A1'><v>-2.50</v></c>", "-2.5"),
        ("<c r='A1'><v>0.30000000000000004</v></c>", "0.3"),
        ("<c r='A1' t='b'><v>1</v></c>", "TRUE"),
        ("<c r='A1' s='1'><v>45413</v></c>", "2024-05-01"),
        ("<c r='A1' s='2'><v>45413.5</v></c>", "2024-05-01 12:00:00"),
        ("<c r='A1' s='3'><v>1.5</v></c>", "36:00:00"),
        ("<c r='A1' t='str'><f>A2</f><v>cached</v></c>", "cached"),
    ],
)
def test_values_are_as_people_see_them(cell: str, shown: str) -> None:
    found = read_spreadsheet(_xlsx({"S": _rows(f"<row r='1'>{cell}</row>")}))
    assert found.text == f"## S\n\n{shown}"
    assert not found.warnings


def test_the_value_of_merged_cells_stands_once() -> None:
    merged = "<mergeCells><mergeCell ref='A1:B1'/></mergeCells>"
    data = _xlsx({"S": _rows(_row(1, A="Both"), _row(2, A="left", B="right")) + merged})
    assert read_spreadsheet(data).text == "## S\n\n| Both |  |\n| --- | --- |\n| left | right |"


@pytest.mark.parametrize(
    ("formula", "warned"),
    [
        ("<f>1+1</f>", True),
        ("<f>1+1</f><v></v>", True),
        ("<f>1+1</f><v/>", True),
        ("<f>1+1</f><v />", True),
        ('<f t="shared" si="0"/>', True),
        ("<f>1+1</f><v>2</v>", False),
    ],
)
def test_formulas_without_results_are_said(formula: str, warned: bool) -> None:
    data = _xlsx({"S": _rows(_row(1, A="Sum"), f'<row r="2"><c r="A2">{formula}</c></row>')})
    assert [warning.code for warning in read_spreadsheet(data).warnings] == ["uncalculated_formulas"] * warned


def test_what_lies_above_the_cells_is_said() -> None:
    drawn = "<xdr:sp><xdr:txBody><a:p>{}</a:p></xdr:txBody></xdr:sp>"
    parts: dict[str, str | bytes] = {
        "xl/comments1.xml": "<comments><commentList><comment ref='A1'/><comment ref='A2'/></commentList></comments>",
        "xl/threadedComments/threadedComment1.xml": "<ThreadedComments><threadedComment ref='A1'/></ThreadedComments>",
        "xl/drawings/drawing1.xml": f"<x>{drawn.format('<a:t>box</a:t><a:t>more</a:t>')}{drawn.format('')}</x>",
        "xl/charts/chart1.xml": "<c:chartSpace><c:plotArea/></c:chartSpace>",
        "xl/charts/style1.xml": "<cs:chartStyle/>",
    }
    assert _said(_xlsx({"S": _rows(_row(1, A="x"))}, extra=parts)) == [
        ("charts_left_out", "Not read: chart (1)"),
        ("unread_parts", "Not read: comment (2), text on a drawing (1)"),
    ]
    cell = (
        "<table:table-cell office:value-type='string'><office:annotation><text:p>c</text:p></office:annotation>"
        "<text:p>a</text:p></table:table-cell>"
    )
    data = _ods(
        f"<table:table table:name='T'><table:table-row>{cell}</table:table-row></table:table>",
        {"Object 1/content.xml": "<office:chart><chart:plot-area/></office:chart>"},
    )
    assert _said(data) == [("charts_left_out", "Not read: chart (1)"), ("unread_parts", "Not read: comment (1)")]


def _said(data: bytes) -> list[tuple[str, str]]:
    return [(warning.code, warning.message.partition(". ")[0]) for warning in read_spreadsheet(data).warnings]


def test_ods() -> None:
    def cell(text: str, attributes: str = "") -> str:
        return f'<table:table-cell office:value-type="string" {attributes}><text:p>{text}</text:p></table:table-cell>'

    data = _ods(
        f'<table:table table:name="Terms"><table:table-row>{cell("Item")}{cell("Days")}</table:table-row>'
        f'<table:table-row>{cell("Refunds")}<table:table-cell office:value-type="float" office:value="3">'
        "<text:p>3</text:p></table:table-cell></table:table-row>"
        '<table:table-row table:number-rows-repeated="1048000"><table:table-cell '
        'table:number-columns-repeated="16384"/></table:table-row></table:table>'
    )
    assert read_spreadsheet(data).text == "## Terms\n\n| Item | Days |\n| --- | --- |\n| Refunds | 3 |"


def test_xls() -> None:
    assert read_spreadsheet(_xls()).text == "## Prices\n\n12.5"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_xlsx({"S": _rows(_row(1))}), "no_text"),
        (_xls(locked=True), "password_protected"),
        (compound_file({"EncryptedPackage": b"x" * 5000, "EncryptionInfo": b"y"}), "password_protected"),
        (_ods("", {"META-INF/manifest.xml": "<m:manifest xmlns:m='m'><m:encryption-data/></m:manifest>"}),
         "password_protected"),
        (b"PK\x03\x04 and no more", "corrupt_document"),
        (_xlsx({"S": _rows(_row(1, A="x"))})[:700], "corrupt_document"),
        (_xlsx({"S": "<sheetData><row"}), "corrupt_document"),

    ],
)  # fmt: skip
def test_refused(data: bytes, code: str) -> None:
    assert _code(data) == code


def _bomb() -> bytes:
    return zipped({"xl/workbook.xml": b" " * (20 * 2**20)})


def _many() -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(10_001):
            archive.writestr(f"xl/worksheets/{number}.xml", "")
    return file.getvalue()


def _far_apart() -> bytes:
    return _xlsx({"S": _rows(_row(1, A="first"), _row(1_048_576, XFD="last"))})


def _same_sheet_often() -> bytes:
    """A hundred thousand sheets that are one member."""
    data = _xlsx({"S": _rows(_row(1, A="x"))})
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    more = "".join(f'<sheet name="n{number}" sheetId="{number + 9}" r:id="r1"/>' for number in range(100_000))
    members["xl/workbook.xml"] = members["xl/workbook.xml"].replace("</sheets>", f"{more}</sheets>")
    return zipped(members)


def _long() -> bytes:
    word = "word " * 6000
    return _xlsx({"S": _rows(*(_row(number, A=f"{number}{word}") for number in range(1, 701)))})


@pytest.mark.parametrize("make", [_bomb, _many, _far_apart, _same_sheet_often, _long])
def test_too_large(make: Callable[[], bytes]) -> None:
    assert _code(make()) == "document_too_large"


def test_damage_anywhere_is_a_refusal_in_our_words() -> None:
    data = _xlsx({"S": _rows(_row(1, A="Item", B="Price"), _row(2, A="Tea", B="3"))})
    for at in range(0, len(data), 37):
        damaged = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        assert _outcome(damaged) in {"read", "corrupt_document", "no_text", "password_protected", "document_too_large"}


def _outcome(data: bytes) -> str:
    try:
        read_spreadsheet(data)
    except DocumentFailed as failed:
        return failed.error.code
    return "read"
