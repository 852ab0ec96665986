"""CSV and TSV with a header line, in the sandbox: one row, one document. See `tabular.py`."""

import csv
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple

import orjson

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.refusals import refused
from tasks.ingestion.parsing.text_encoding import table_encoding
from tasks.ingestion.sources.allowed_paths import is_encodable
from tasks.ingestion.sources.record import (
    Described,
    FieldMap,
    Range,
    Record,
    Request,
    places_of,
    range_of,
    too_long,
    whole_number,
)

HEAD_BYTES = 2**16
"""Of a table: they tell its encoding and its columns."""
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r'"?sep=([,;:|^~\t])"?[,;\t|]*[\r\n]+', re.IGNORECASE)


class _Layout(NamedTuple):
    """How the file is read.

    Attributes:
        guessed: the head is ASCII, and tells nothing of the bytes behind it.
        columns: index of each that is wanted.
        width: how many columns there are.
        first: where rows begin.
    """

    encoding: str
    delimiter: str
    guessed: bool = False
    columns: Mapping[str, int] = {}
    width: int = 0
    first: int = 0


class _Row(NamedTuple):
    """`cells`: none for a blank row, of separators alone too; None: it is wrong, and `problem` says why."""

    cells: list[str] | None
    length: int
    problem: tuple[str, str] = ("", "")


def cut_rows(request: Request, head: bytes, block: bytes) -> dict[str, Any]:
    """Numbers are those of records behind the header."""
    layout, whole = _layout_of(request, head), request["whole"]
    start = max(layout.first - request["at"], 0)
    if request["skip"]:
        lines = _lines(block, layout.encoding, whole=whole)
        return range_of(len(lines[0])) if lines else range_of(len(block), skip=True)
    length = count = 0
    for row in _rows(block[start:], layout, request["limit"], whole=whole):
        full = count >= request["records"] or length + row.length > request["bytes"]
        if count and row.cells != [] and full:
            break
        length += row.length
        count += row.cells != []
    if not length and not whole and len(block) - start > request["limit"] + 2:
        return range_of(start, len(block) - start, 1, 1, skip=True)
    return range_of(start, length, count, count)


def csv_records(request: Request, head: bytes, block: bytes) -> Iterator[Record]:
    """The records of a range. Numbers are those of records behind the header."""
    layout, fields = _layout_of(request, head), FieldMap.from_request(request["fields"])
    start, number = request["at"], request["number"]
    for row in _rows(block, layout, request["limit"], whole=True):
        if row.cells != []:
            yield Range(start, row.length, number), _csv_record(fields, layout, row)
            number += 1
        start += row.length


def _csv_record(fields: FieldMap, layout: _Layout, row: _Row) -> Described:
    cells = row.cells
    if cells is None:
        return Described(error=row.problem)
    if any(cells[layout.width :]):
        message = "The row has more fields than the header has names. Quote fields with separators in them."
        return Described(error=("malformed_record", message))
    record = {name: cells[at] for name, at in layout.columns.items() if at < len(cells)}
    if own := fields.name_of_id(record):
        record[own] = whole_number(record[own])
    return fields.described(record)


# ---- the header ------------------------------------------------------------------------------------------------------


def _layout_of(request: Request, head: bytes) -> _Layout:
    delimiters = "\t" if request["format"] == "tsv" else _DELIMITERS
    return _layout(head, delimiters, orjson.dumps(request["fields"]), request["limit"])


@lru_cache(maxsize=4)
def _layout(head: bytes, delimiters: str, fields_json: bytes, limit: int) -> _Layout:
    """What the head of a table says of it. Raises `DocumentFailed`."""
    fields = FieldMap.from_request(orjson.loads(fields_json))
    encoding, first = table_encoding(head)
    guessed = encoding == "utf-8" and head.isascii()
    if told := _SEPARATOR.match(_decoded(_Layout(encoding, ""), head[first:])):  # by Excel
        delimiters, first = told[1], first + len(told[0].encode(encoding))
    if not head[first:].strip(b"\0\r\n"):
        raise refused("empty_document", "The file is empty.")
    whole = len(head) < HEAD_BYTES
    headers = {each: _header(head[first:], _Layout(encoding, each), limit, whole=whole) for each in delimiters}
    fits = {each: (_has_wanted(fields, row), len(row.cells)) for each, row in headers.items() if row.cells}
    best = max(fits, key=fits.__getitem__, default="")
    unread = [row.problem[1] for row in headers.values() if row.cells is None]
    if unread and (not best or fits[best] == (False, 1)):
        raise refused("malformed_record", f"The header line cannot be read. {unread[0]}")
    names = _names(headers[best])
    return _Layout(encoding, best, guessed, _columns(fields, names), len(names), first + headers[best].length)


def _header(data: bytes, layout: _Layout, limit: int, *, whole: bool) -> _Row:
    """The first row that is not blank; its length is with the blank ones before it."""
    blank = 0
    for row in _rows(data, layout, limit, whole=whole):
        if row.cells != []:
            return row._replace(length=blank + row.length)
        blank += row.length
    return _Row(None, 0, ("malformed_record", f"It has more than {HEAD_BYTES:,} bytes, or a quote is never closed."))


def _names(header: _Row) -> list[str]:
    return [name.strip("\ufeff \t") for name in header.cells or ()]


def _has_wanted(fields: FieldMap, header: _Row) -> bool:
    try:
        return bool(fields.columns(_names(header)))
    except DocumentFailed:
        return False


def _columns(fields: FieldMap, names: list[str]) -> Mapping[str, int]:
    """Where the columns are that are asked for. Raises `DocumentFailed`."""
    try:
        wanted = fields.columns(names)
    except DocumentFailed as failed:
        if not all(map(is_encodable, names)):
            message = "The header line is not valid in the encoding as which the file begins. Save it as UTF-8."
            raise refused("invalid_encoding", message) from None
        where = "The first line of the file must name its columns: delete what is above it, such as a title."
        raise refused(failed.error.code, f"{failed.error.message} {where}") from None
    return places_of(wanted, names)


# ---- rows ------------------------------------------------------------------------------------------------------------


def _rows(data: bytes, layout: _Layout, limit: int, *, whole: bool) -> Iterator[_Row]:
    """Rows with their lengths in bytes. After a bad row it goes on with the next line.

    Not `whole`: a row that may go on behind the end is left out, unless it is too long already.
    """
    # It also bounds what is read in search of the end of a quote. It holds for the whole process.
    csv.field_size_limit(limit)
    lines = _lines(data, layout.encoding, whole=whole)
    ends = [0, *accumulate(map(len, lines))]
    at, last, decode = 0, len(lines), partial(_decoded, layout)
    while at < last:
        first, texts = at, map(decode, islice(lines, at, None))
        reader = csv.reader(texts, delimiter=layout.delimiter, skipinitialspace=True, strict=True)
        try:
            for cells in reader:
                length = ends[first + reader.line_num] - ends[at]
                at = first + reader.line_num
                if length > limit + 2:
                    yield _Row(None, length, too_long("row", limit))
                else:
                    yield _Row(cells if any(cells) else [], length)
        except csv.Error as error:
            goes_on = not whole and first + reader.line_num == last
            if goes_on and len(data) - ends[at] <= limit + 2:
                return
            length = ends[at + 1] - ends[at]
            yield _Row(None, length, too_long("row", limit) if length > limit else _problem(error))
            at += 1


def _problem(error: csv.Error) -> tuple[str, str]:
    if "expected after" in str(error):
        return "malformed_record", 'A quote within a quoted field is not doubled. Write it as "".'
    return "malformed_record", "A quote in the row is never closed, or only far behind it."


def _lines(data: bytes, encoding: str, *, whole: bool) -> list[bytes]:
    """Lines with what ends them, whatever that is. Not `whole`: the last one needs an end."""
    # In every supported encoding that is not wide, bytes 10 and 13 are line breaks and nothing else.
    cr, lf = (letter.encode(encoding) for letter in "\r\n")
    if len(lf) == 1:
        lines = data.splitlines(keepends=True)
    else:
        found = re.finditer(re.escape(cr) + b"(?:" + re.escape(lf) + b")?|" + re.escape(lf), data)
        ends = [0, *(match.end() for match in found if match.start() % len(lf) == 0), len(data)]
        lines = [data[start:end] for start, end in pairwise(ends) if start < end]
    return lines if whole or not lines or lines[-1].endswith((cr, lf)) else lines[:-1]


def _decoded(layout: _Layout, line: bytes) -> str:
    """Bytes that are wrong in the encoding become lone surrogates."""
    encoding = layout.encoding
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        if layout.guessed and line.decode(encoding, "ignore").isascii():
            encoding = "cp1252"  # as Excel writes: `table_encoding` guesses it of short Western texts, too
    try:
        return line.decode(encoding, "surrogateescape")
    except UnicodeDecodeError:
        return line.decode(encoding, "replace").replace("\ufffd", "\udcff")
