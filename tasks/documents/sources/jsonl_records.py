"""JSON lines: one object, one document."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from tasks.document_error import DocumentError
from tasks.documents.sources.content import Content, changed
from tasks.documents.sources.line_reader import byte_lines, read_places
from tasks.documents.sources.record_fields import FieldMap, listing_error
from tasks.documents.sources.records import LIMIT_SETTING, Record
from tasks.lines import encoding_fault
from tasks.wire.json_limits import MAX_PARTS, has_more_parts

_BOM = b"\xef\xbb\xbf"


class JsonLines:
    """UTF-8. Numbers are those of lines, blank ones too, as an editor counts."""

    def __init__(self, fields: FieldMap, max_record_bytes: int) -> None:
        self._fields = fields
        self._max_bytes = max_record_bytes

    def records(self, content: Content, position: Any, progress: Callable[[], None]) -> Iterator[Record]:
        """See `RecordFormat`. A position is the offset of a line and the number of those before it."""
        offset, number = position or (0, 0)
        for line in byte_lines(content, offset, self._max_bytes, progress):
            number += 1
            place = (offset, line.size_bytes)
            offset += line.size_bytes
            if line.data is not None and not line.data.strip():
                continue
            fields, problem = self._parsed(line.data)
            size_bytes = 0 if fields is None else line.size_bytes
            document = None if fields is None else self._fields.described(fields)
            error = listing_error(*problem) if problem else None
            yield Record(number, document, size_bytes, line.size_bytes, place, (offset, number), error)

    def again(
        self, content: Content, places: Sequence[Any], progress: Callable[[], None]
    ) -> Iterator[str | DocumentError]:
        """See `RecordFormat`."""
        for data in read_places(content, places, progress):
            fields, _ = self._parsed(data)
            if fields is None:
                raise changed()
            yield self._fields.text_or_error(fields)

    def _parsed(self, data: bytes | None) -> tuple[Mapping[str, Any] | None, tuple[str, str] | None]:
        if data is None:
            return None, ("document_too_large", f"The line has more than {self._max_bytes:,} bytes ({LIMIT_SETTING}).")
        if has_more_parts(data):
            return None, ("document_too_large", f"The line has more than {MAX_PARTS:,} lists, objects and fields.")
        try:
            fields = orjson.loads(data.removeprefix(_BOM))
        except orjson.JSONDecodeError as error:
            # The parser's message names a position, never the text.
            message = f"The line is not JSON: {error.msg} (column {error.colno})."
            return None, ("malformed_record", encoding_fault(data) or message)
        if not isinstance(fields, dict):
            return None, ("malformed_record", "The line is not a JSON object.")
        return fields, None
