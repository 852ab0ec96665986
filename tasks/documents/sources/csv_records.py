"""CSV and TSV with a header line: one row, one document."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.document_error import DocumentError, DocumentFailed
from tasks.documents.sources.content import Content, changed
from tasks.documents.sources.line_reader import decoded, read_places, text_lines
from tasks.documents.sources.record_fields import FieldMap, listing_error
from tasks.documents.sources.records import LIMIT_SETTING, Record
from tasks.ingestion.parsing.text_encoding import table_encoding

_HEAD_BYTES = 64 * 1024
_DELIMITERS = ",;\t|"


class _TooLong(Exception):
    """A record is longer than allowed; perhaps its quote is never closed."""


@dataclass(frozen=True, slots=True)
class _Layout:
    encoding: str
    delimiter: str
    columns: Sequence[str]
    first: int  # offset of the first record behind the header


class Csv:
    """Any encoding, quoted fields with line breaks in them. Numbers are those of records behind the header."""

    def __init__(self, fields: FieldMap, max_record_bytes: int, delimiter: str | None = None) -> None:
        self._fields = fields
        self._max_bytes = max_record_bytes
        self._delimiter = delimiter
        # The library's own limit of 131,072 characters holds for the whole process.
        csv.field_size_limit(max(csv.field_size_limit(), max_record_bytes))

    def records(self, content: Content, position: Any, progress: Callable[[], None]) -> Iterator[Record]:
        """See `RecordFormat`. A position is the offset of a record and the number of those before it."""
        layout = self._layout(content, progress)
        offset, number = position or (layout.first, 0)
        for row, size, problem in self._rows(content, layout, offset, progress):
            place = (offset, size)
            offset += size
            if row == []:  # a blank line
                continue
            number += 1
            wrong = problem
            if row is not None and len(row) > len(layout.columns):
                wrong = "The row has more fields than the header. Quote fields with separators in them."
            fields = None if row is None or wrong else _named(layout, row)
            document = None if fields is None else self._fields.described(fields)
            error = listing_error("malformed_record", wrong) if wrong else None
            yield Record(number, document, size if document else 0, size, place, (offset, number), error)

    def again(
        self, content: Content, places: Sequence[Any], progress: Callable[[], None]
    ) -> Iterator[str | DocumentError]:
        """See `RecordFormat`."""
        layout = self._layout(content, progress)
        for data in read_places(content, places, progress):
            text = io.StringIO(decoded(data, layout.encoding), newline="")
            try:
                row = next(csv.reader(text, delimiter=layout.delimiter, strict=True))
            except (csv.Error, StopIteration):
                raise changed() from None
            yield self._fields.text_or_error(_named(layout, row))

    def _layout(self, content: Content, progress: Callable[[], None]) -> _Layout:
        encoding, first = table_encoding(content.read(0, _HEAD_BYTES))
        delimiter = self._delimiter or self._likely_delimiter(content, encoding, first, progress)
        for row, size, problem in self._rows(content, _Layout(encoding, delimiter, (), 0), first, progress):
            first += size
            if problem is not None or row is None:
                raise DocumentFailed("malformed_record", f"The header line cannot be read. {problem}", "listing")
            if row:
                break
        else:
            raise DocumentFailed("empty_document", "The file is empty.", "listing")
        named = [name for name in row if name]
        if len(set(named)) < len(named):
            raise DocumentFailed("invalid_header", "Two columns have the same name. Rename one.", "listing")
        self._require_columns(row)
        return _Layout(encoding, delimiter, row, first)

    def _require_columns(self, columns: Sequence[str]) -> None:
        try:
            self._fields.columns(columns)
        except DocumentFailed as failed:
            message = f"{failed.error.message} The first line of the file must name its columns."
            raise DocumentFailed(failed.error.code, message, "listing") from None

    def _likely_delimiter(self, content: Content, encoding: str, first: int, progress: Callable[[], None]) -> str:
        line, _ = next(text_lines(content, first, encoding, self._max_bytes, progress), ("", 0))
        counts = Counter(letter for letter in line or "" if letter in _DELIMITERS)
        return max(_DELIMITERS, key=lambda letter: counts[letter])

    def _rows(
        self, content: Content, layout: _Layout, offset: int, progress: Callable[[], None]
    ) -> Iterator[tuple[list[str] | None, int, str | None]]:
        """Rows with their sizes in bytes, or the problem of a row. After a bad row it continues with the next line."""
        while True:
            lines = text_lines(content, offset, layout.encoding, self._max_bytes, progress)
            tape = _Tape(lines, self._max_bytes)
            try:
                for row in csv.reader(tape, delimiter=layout.delimiter, strict=True):
                    size = tape.taken()
                    offset += size
                    yield row, size, None
            except csv.Error as error:
                problem = f"The row is not valid CSV: {error}. Is a quote not closed, or not doubled?"
            except _TooLong:
                limit = f"{self._max_bytes:,} bytes ({LIMIT_SETTING})"
                problem = f"The row has more than {limit}, or a quote in it is not closed."
            else:
                return
            offset += tape.first_bytes
            yield None, tape.first_bytes, problem


def _named(layout: _Layout, row: Sequence[str]) -> Mapping[str, str]:
    return {name: value for name, value in zip(layout.columns, row, strict=False) if name}


class _Tape:
    """Gives lines to the reader, and counts the bytes of each record, so that the offset of the next one is known."""

    def __init__(self, lines: Iterator[tuple[str | None, int]], max_bytes: int) -> None:
        self._lines = lines
        self._max_bytes = max_bytes
        self._size = 0
        self.first_bytes = 0

    def __iter__(self) -> "_Tape":
        return self

    def __next__(self) -> str:
        text, size = next(self._lines)
        self.first_bytes = self.first_bytes or size
        self._size += size
        if text is None or self._size > self._max_bytes + 1:
            raise _TooLong
        return text

    def taken(self) -> int:
        """Bytes of the lines since the last call."""
        size, self._size, self.first_bytes = self._size, 0, 0
        return size
