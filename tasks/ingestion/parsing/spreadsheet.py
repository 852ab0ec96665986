"""Spreadsheets (XLSX, XLSM, XLSB, XLS, ODS): a heading for each sheet, and its cells as a table."""

import datetime as dt
import io
import re
from collections import Counter
from collections.abc import Iterator

from tasks.ingestion.parsing.archive import MAX_MEMBERS, Archive, open_archive, read_member
from tasks.ingestion.parsing.extracted import Extracted, clean, joined
from tasks.ingestion.parsing.markdown_table import markdown_table
from tasks.ingestion.parsing.refusals import corrupt, missing, protected, too_large

_NAME = "spreadsheet"
_ZIP = b"PK"
_WHOLE = 1e15  # beyond this a float has no digits after its point, nor all of those before it
_MAX_CELLS = 16 * 2**20  # the library holds a sheet from its first cell to its last, 32 bytes for each between them

# XLS: the first record of a workbook is followed by that of its password. Other files of Office: a part of this name.
_LOCKED = re.compile(
    rb"(?s)\x09\x08(?:\x08\0.{8}|\x10\0.{16})(?:\x86\0\0\0)?\x2f\0.\0|" + "EncryptedPackage".encode("utf-16-le")
)
_DIMENSION = re.compile(rb'<(?:\w+:)?dimension ref="[A-Z]+\d+:([A-Z]+)(\d+)"')
_FILLED = re.compile(rb'<(?:\w+:)?c r="([A-Z]{1,3})(\d{1,7})"[^<>]*(?<!/)>\s*<[^/]')
_UNCALCULATED = re.compile(rb"(?:</f>|<f [^<>]*/>)\s*(?:<v ?/>|<v>\s*</v>)?\s*</c>")
_CELL_BEGIN, _CELL_BYTES = b"<c ", 16_384
# What lies above the cells: its kind, the members that have it, and a mark of each.
_ABOVE = (
    ("comment", re.compile(r"xl/comments.+|content\.xml"), re.compile(rb"<(?:\w+:)?(?:comment|annotation)[ />]")),
    ("chart", re.compile(r"xl/charts/chart.+|.+/content\.xml"), re.compile(rb"<(?:\w+:)?plot-?[Aa]rea[ />]")),
    ("text on a drawing", re.compile(r"xl/drawings/.+"), re.compile(rb"<xdr:txBody>(?:(?!txBody>)(?s:.))*?</a:t>")),
)


def read_spreadsheet(data: bytes) -> Extracted:
    """Tables in Markdown, one for each sheet with text, hidden ones too.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`, `missing_parser`.
    """
    if _LOCKED.search(data):  # the library takes it for damaged
        raise protected(_NAME)
    unread = _checked(open_archive(data, _NAME)) if data.startswith(_ZIP) else None
    tables = (f"## {' '.join(clean(name).split())}\n\n{table}" for name, table in _tables(data) if clean(table))
    return joined(tables, unread=unread)


def _tables(data: bytes) -> Iterator[tuple[str, str]]:
    """Name and table of each sheet."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("python-calamine") from None
    try:
        with CalamineWorkbook.from_filelike(io.BytesIO(data)) as book:
            sheets = book.sheets_metadata
            if len(sheets) > MAX_MEMBERS:  # many may be the same member
                raise too_large(f"has {len(sheets):,} sheets, more than {MAX_MEMBERS:,}")  # noqa: TRY301 - goes on below
            for number, sheet in enumerate(sheets):
                if sheet.typ in (SheetTypeEnum.WorkSheet, SheetTypeEnum.MacroSheet):
                    rows = book.get_sheet_by_index(number).iter_rows()
                    yield sheet.name, markdown_table([_shown(value) for value in row] for row in rows)
    except BaseException as error:  # also a panic of Rust, for a file cut off: no Exception, and not to be imported
        ours = isinstance(error, (CalamineError, ValueError, OSError, OverflowError))
        if not ours and type(error).__name__ != "PanicException":
            raise
        raise corrupt(_NAME) from None


def _shown(value: object) -> str:
    """As people see it, but for formats of their own."""
    match value:
        case bool():
            return str(value).upper()
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else f"{value:.15g}"
        case dt.datetime():
            return str(value.replace(microsecond=0)).removesuffix(" 00:00:00")
        case dt.timedelta():
            minutes, seconds = divmod(round(value.total_seconds()), 60)
            return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
        case _:  # texts, dates, times
            return str(value)


def _checked(archive: Archive) -> Counter[str]:
    """Unpacks, with bounds, all that the library is going to unpack without; looks at XLSX for what it cannot tell."""
    unread = Counter[str]()
    for name in archive.file.namelist():
        if not name.endswith((".xml", ".bin", ".rels")):
            continue
        member = read_member(archive, name) or b""
        if name == "META-INF/manifest.xml" and b"encryption-data" in member:
            raise protected(_NAME)
        for kind, members, mark in _ABOVE:
            if members.fullmatch(name):
                unread[kind] += len(mark.findall(member))
        if name.endswith(".xml"):  # a sheet may lie anywhere, and nothing else looks like its cells
            _check_extent(member)
            unread["uncalculated formula"] += sum(_formulas_without_value(member))
    return unread


def _formulas_without_value(sheet: bytes) -> Iterator[bool]:
    """True for each; a formula whose result is the empty string has none either, and says that it is a string."""
    for match in _UNCALCULATED.finditer(sheet):
        begin = sheet.rfind(_CELL_BEGIN, max(0, match.start() - _CELL_BYTES), match.start())
        yield begin >= 0 and b't="str"' not in sheet[begin : sheet.find(b">", begin, match.end())]


def _check_extent(sheet: bytes) -> None:
    """Refuses a sheet whose cells with something in them lie far apart, unless it says that it is small."""
    dimension = _DIMENSION.search(sheet, 0, 4096)
    if dimension is not None and _column(dimension[1]) * int(dimension[2]) <= _MAX_CELLS:
        return
    columns = rows = 0
    for cell in _FILLED.finditer(sheet):
        columns, rows = max(columns, _column(cell[1])), max(rows, int(cell[2]))
    if columns * rows > _MAX_CELLS:
        raise too_large(f"has a sheet of {rows:,} rows and {columns:,} columns, counted to the last cells in use")


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number
