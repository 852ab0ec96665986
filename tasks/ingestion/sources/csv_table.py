"""CSV and TSV with a header line, in the sandbox: one row, one document. See `tabular.py`."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import orjson

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.text_encoding import table_encoding
from tasks.ingestion.sources.field_mapping import Described, FieldMap
from tasks.ingestion.sources.record import LIMIT_SETTING, Record, Request, bad, range_of, refused

HEAD_BYTES = 2**16
"""Of a table: they tell its encoding and its columns."""
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r'"?sep=(.)"?[,;\t|]*[\r\n]*', re.IGNORECASE)
_TITLES = 20
"""Rows of a table in which its header is looked for, to say so."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_TEXT_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_WIDE = ("utf-16", "utf-32")
_WHOLE_FLOAT = re.compile(r"(-?\d+)\.0")


_OPEN = "A quote in it is never closed."


class _Layout(NamedTuple):
    """`columns`: index and name of each that is wanted; `width`: how many there are; `first`: where rows begin."""

    encoding: str
    delimiter: str
    columns: Sequence[tuple[int, str]]
    width: int
    first: int


class _Row(NamedTuple):
    """`cells`: none for a blank line; None: the row is wrong, and `problem` says why."""

    cells: list[str] | None
    length: int
    problem: tuple[str, str] = ("", "")


def cut_rows(request: Request, head: bytes, block: bytes) -> dict[str, Any]:
    """Numbers are those of records behind the header."""
    layout = _layout_of(request, head)
    start = max(layout.first - request["at"], 0)
    if request["skip"]:
        source = _source(block, layout.encoding, whole=request["whole"])
        line = next(_lines(source, layout.encoding, whole=request["whole"]), None)
        return range_of(line[1]) if line else range_of(_even(block, layout.encoding), skip=True)
    length = count = 0
    for row in _rows(block[start:], layout, request["limit"], whole=request["whole"]):
        full = count >= request["records"] or length + row.length > request["bytes"]
        if count and row.cells != [] and full:
            break
        length += row.length
        count += row.cells != []
    if not length and not request["whole"] and len(block) - start > request["limit"] + 2:
        return range_of(start, _even(block, layout.encoding) - start, 1, 1, skip=True)
    return range_of(start, length, count, count)


def csv_records(request: Request, head: bytes, block: bytes) -> Iterator[Record]:
    """The records of a range. Numbers are those of records behind the header."""
    layout, fields = _layout_of(request, head), FieldMap.from_json(request["fields"])
    start, number = request["at"], request["number"]
    for row in _rows(block, layout, request["limit"], whole=True):
        if row.cells != []:
            yield Record(start, row.length, number, _csv_record(fields, layout, row))
            number += 1
        start += row.length


def _csv_record(fields: FieldMap, layout: _Layout, row: _Row) -> Described:
    if row.cells is None:
        return bad(*row.problem)
    if any(row.cells[layout.width :]):
        message = "The row has more fields than the header has names. Quote fields with separators in them."
        return bad("malformed_record", message)
    cells = row.cells
    record = {name: cells[at] for at, name in layout.columns if at < len(cells)}
    own = fields.name_of_id(record)
    # A column of whole numbers in which one was missing, as pandas and Excel write it.
    if own and (whole := _WHOLE_FLOAT.fullmatch(record[own])):
        record[own] = whole[1]
    return fields.described(record)


def _layout_of(request: Request, head: bytes) -> _Layout:
    delimiter = "\t" if request["format"] == "tsv" else None
    return _layout(head, delimiter, orjson.dumps(request["fields"]), request["limit"])


@lru_cache(maxsize=4)
def _layout(head: bytes, delimiter: str | None, fields_json: bytes, limit: int) -> _Layout:
    """What the head of a table says of it. Raises `DocumentFailed`."""
    fields = FieldMap.from_json(orjson.loads(fields_json))
    encoding, first = table_encoding(head)
    line = next(_lines(_source(head[first:], encoding, whole=False), encoding, whole=True), ("", 0, 0))
    if told := _SEPARATOR.fullmatch(line[0]):  # by Excel
        delimiter, first = told[1], first + line[1]
    tops = {each: _top(head[first:], _Layout(encoding, each, (), 0, 0), limit) for each in delimiter or _DELIMITERS}
    if not head[first:].strip(b"\0\r\n"):
        raise refused("empty_document", "The file is empty.")
    readable = {each: rows for each, rows in tops.items() if rows and rows[0].cells}
    widths = {each: (_has_wanted(fields, rows[0]), len(rows[0].cells or ())) for each, rows in readable.items()}
    best = max(widths, key=widths.__getitem__, default="")
    alone = best and widths[best] == (False, 1)
    if not best or (alone and len(readable) < len(tops)):
        problem = next((rows[0].problem[1] for rows in tops.values() if rows and not rows[0].cells), _OPEN)
        raise refused("malformed_record", f"The header line cannot be read. {problem}")
    header = readable[best][0]
    names = _names(header)
    try:
        wanted = fields.columns(names)
    except DocumentFailed as failed:
        raise refused(failed.error.code, f"{failed.error.message} {_where(fields, tops)}") from None
    for name in {*wanted} - {""}:
        if names.count(name) > 1:
            one, other = [number for number, each in enumerate(names, 1) if each == name][:2]
            message = f"Columns {one} and {other} have the same name, which is asked for. Rename one."
            raise refused("invalid_header", message)
    columns = [(at, name) for at, name in enumerate(names) if name and name in {*wanted}]
    return _Layout(encoding, best, columns, len(names), first + header.length)


def _top(data: bytes, layout: _Layout, limit: int) -> list[_Row]:
    """The first rows that are not blank; the length of the first is with the blank ones before it."""
    found, blank = list[_Row](), 0
    for row in _rows(data, layout, limit, whole=len(data) < HEAD_BYTES // 2):
        if row.cells == []:
            blank += row.length
            continue
        found.append(row._replace(length=row.length + (0 if found else blank)))
        if len(found) == _TITLES:
            break
    return found


def _names(row: _Row) -> list[str]:
    return [name.strip("\ufeff \t") for name in row.cells or ()]


def _has_wanted(fields: FieldMap, row: _Row) -> bool:
    try:
        return bool(fields.columns(_names(row)))
    except DocumentFailed:
        return False


def _where(fields: FieldMap, tops: Mapping[str, Sequence[_Row]]) -> str:
    numbers = [n for rows in tops.values() for n, row in enumerate(rows, 1) if _has_wanted(fields, row)]
    if not numbers:
        return "The first line of the file must name its columns."
    return f"Row {min(numbers)} seems to name the columns: delete what is above it, such as a title."


def _rows(data: bytes, layout: _Layout, limit: int, *, whole: bool) -> Iterator[_Row]:
    """Rows with their lengths in bytes. After a bad row it goes on with the next line.

    Not `whole`: a row that may go on behind the end is left out, unless it is too long already.
    """
    # The library's own limit of 131,072 characters holds for the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), limit + 3))
    source, at, left = _source(data, layout.encoding, whole=whole), 0, len(data)
    while True:
        tape = _Tape(_lines(source, layout.encoding, at, whole=whole), limit)
        try:
            for row in csv.reader(tape, delimiter=layout.delimiter, strict=True):
                left -= tape.length
                yield _Row(row, tape.taken())
        except (csv.Error, _TooLong):
            if tape.ended and not whole and (not tape.first or left <= limit + 2):
                return
        else:
            return
        at, left = tape.first_end, left - tape.first
        yield _Row(None, tape.first, _problem(tape, limit))


def _problem(tape: "_Tape", limit: int) -> tuple[str, str]:
    if tape.length > limit + 2 and tape.length == tape.first:
        return "document_too_large", f"The row has more than {limit:,} bytes ({LIMIT_SETTING}). Split it."
    if tape.ended or tape.length > limit + 2:
        message = f"A quote in the row is never closed, or the row has more than {limit:,} bytes ({LIMIT_SETTING})."
        return "malformed_record", message
    return "malformed_record", 'A quote within a quoted field is not doubled. Write it as "".'


class _TooLong(Exception):
    """A record is longer than allowed; perhaps its quote is never closed."""


class _Tape:
    """Gives lines to the reader, and counts the bytes of each record, so that the offset of the next one is known.

    Attributes:
        length: of the lines since the last record.
        first, first_end: length of the first of them, and where in the source it ends.
        ended: there are no more.
    """

    def __init__(self, lines: Iterator["_Line"], limit: int) -> None:
        self._lines = lines
        self._limit = limit
        self.length = self.first = self.first_end = 0
        self.ended = False

    def __iter__(self) -> "_Tape":
        return self

    def __next__(self) -> str:
        try:
            text, length, end = next(self._lines)
        except StopIteration:
            self.ended = True
            raise
        if not self.first:
            self.first, self.first_end = length, end
        self.length += length
        if self.length > self._limit + 2:
            raise _TooLong
        return text

    def taken(self) -> int:
        """`length`, which begins anew."""
        length, self.length, self.first = self.length, 0, 0
        return length


_Line: TypeAlias = tuple[str, int, int]
"""A line with its end, its length in bytes, and where in the source it ends."""


def _source(data: bytes, encoding: str, *, whole: bool) -> bytes | str:
    """What is divided into lines: bytes, but in wide encodings the text.

    Raises:
        DocumentFailed: the file begins like UTF-16 or UTF-32, and is something else later.
    """
    if not encoding.startswith(_WIDE):
        return data
    data = data[: _even(data, encoding)]
    try:
        return data.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3 or whole:  # else half of a character at the end
            message = f"The file is not valid {encoding.upper()}, as which it begins. Save it as UTF-8."
            raise DocumentFailed("invalid_encoding", message, "reading") from None
        return data[: error.start].decode(encoding, "surrogatepass")


def _lines(source: bytes | str, encoding: str, at: int = 0, *, whole: bool) -> Iterator[_Line]:
    """Lines, from a place in the source on, whatever ends them. Not `whole`: the last needs an end.

    Bytes that are wrong in the encoding become lone surrogates.
    """
    if isinstance(source, bytes):
        # In every supported encoding that is not wide, bytes 10 and 13 are line breaks and nothing else.
        for match in _LINE.finditer(source, at):
            line = match[0]
            if whole or line[-1] in b"\r\n":
                yield _decoded(line, encoding), len(line), match.end()
        return
    for found in _TEXT_LINE.finditer(source, at):
        text = found[0]
        if whole or text[-1] in "\r\n":
            yield text, len(text.encode(encoding, "surrogatepass")), found.end()


def _even(data: bytes, encoding: str) -> int:
    """Bytes of the whole units of an encoding in some data."""
    unit = 4 if encoding.startswith("utf-32") else 2 if encoding.startswith("utf-16") else 1
    return len(data) - len(data) % unit


def _decoded(line: bytes, encoding: str) -> str:
    try:
        return line.decode(encoding, "surrogateescape")
    except UnicodeDecodeError:
        return line.decode(encoding, "replace").replace("\ufffd", "\udcff")
