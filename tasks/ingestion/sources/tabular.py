"""Files of records: CSV, TSV, JSON lines and Parquet. Runs in the sandbox; pure functions of a request and its bytes.

A request to cut a file (`cut`) has bytes that begin where a record does, and is answered with the length of a range of
whole records; what comes behind it is the next request. A request for records (`records`) has the bytes of a range.
Both find the same records, since they are cut by the same code. Rows of Parquet are read from a path.

    {"type": "cut", "format", "fields", "limit", "head", "at", "whole", "skip", "records", "bytes"}
        -> {"start", "length", "numbers", "records", "skip"}, in front of "start" is a header or what was skipped
    {"type": "records", "format", "fields", "limit", "head", "at", "number"} -> [values of each record]
    {"type": "row_groups", "fields", "path"} -> [[rows, bytes] of each group]
    {"type": "rows", "fields", "limit", "path", "key", "at", "group", "rows", "number"} -> [values of each record]

`limit`: bytes of a record; `at`: where the bytes begin in the file, whose first `head` bytes come before them; `whole`:
they end where the file does; `skip`: they begin within a line that is too long.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from json import loads
from typing import Any

import orjson

from tasks.ingestion.sources.csv_table import csv_records, cut_rows
from tasks.ingestion.sources.parquet_table import row_groups, rows
from tasks.ingestion.sources.record import (
    Answer,
    Described,
    FieldMap,
    Range,
    Record,
    Request,
    range_of,
    record_to_json,
    too_long,
    whole_number,
)
from tasks.lines import encoding_fault
from tasks.wire.json_limits import MAX_PARTS, has_more_parts


def cut(request: Request, body: bytes) -> Answer:
    """The next range. Its `records` are what there seems to be in it; `numbers` are counted on by.

    Raises:
        DocumentFailed: the file is not of this format.
    """
    head, block = body[: request["head"]], body[request["head"] :]
    return (_cut_lines if request["format"] == "jsonl" else cut_rows)(request, head, block), b""


def records(request: Request, body: bytes) -> Answer:
    """The records of a range; blank lines are none."""
    head, block = body[: request["head"]], body[request["head"] :]
    found = (_json_records if request["format"] == "jsonl" else csv_records)(request, head, block)
    return {}, b"[" + b",".join(map(record_to_json, found)) + b"]"


# ---- JSON lines ------------------------------------------------------------------------------------------------------


def _cut_lines(request: Request, _: bytes, block: bytes) -> dict[str, Any]:
    """Numbers are those of lines, blank ones too, as an editor counts."""
    if request["skip"]:
        end = block.find(b"\n") + 1
        return range_of(end) if end else range_of(len(block), skip=True)
    length = numbers = count = 0
    for line in io.BytesIO(block):
        full = numbers and (numbers >= request["records"] or length + len(line) > request["bytes"])
        if full or not (request["whole"] or line.endswith(b"\n")):
            break
        length, numbers, count = length + len(line), numbers + 1, count + bool(line.strip())
    if not numbers and len(block) > request["limit"]:
        return range_of(0, len(block), 1, 1, skip=True)
    return range_of(0, length, numbers, count)


def _json_records(request: Request, _: bytes, block: bytes) -> Iterator[Record]:
    fields, start = FieldMap.from_request(request["fields"]), request["at"]
    for number, line in enumerate(io.BytesIO(block), request["number"]):
        if line.strip():
            yield Range(start, len(line), number), _json_record(fields, line, request["limit"])
        start += len(line)


def _json_record(fields: FieldMap, line: bytes, limit: int) -> Described:
    if len(line) > limit + 1:
        return Described(error=too_long("line", limit))
    if has_more_parts(line):
        message = f"The line has more than {MAX_PARTS:,} lists, objects and fields. Split it."
        return Described(error=("document_too_large", message))
    line = line.removeprefix(b"\xef\xbb\xbf")
    try:
        record = _from_json(line)
    except (ValueError, RecursionError) as error:
        where = f" (column {error.colno})" if isinstance(error, orjson.JSONDecodeError) else ""
        message = f"The line is not JSON{where}. Write each record as one object on a line of its own."
        return Described(error=("malformed_record", encoding_fault(line) or message))
    if not isinstance(record, dict):
        message = "The line is not a JSON object. Write each record as one object on a line of its own."
        return Described(error=("malformed_record", message))
    own = fields.name_of_id(record)
    if own and isinstance(record[own], float):
        # The exact number as it was written: two of thirty digits are one float.
        record[own] = loads(line, parse_int=str, parse_float=whole_number, parse_constant=str)[own]
    return fields.described(record)


def _from_json(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:
        # Python and pandas write what JSON has no word for. It is nothing, as orjson writes it, too.
        if re.search(rb"\b(?:NaN|Infinity)\b", line):
            with suppress(ValueError, RecursionError):
                return loads(line, parse_constant=lambda _: None)
        raise


HANDLERS: Mapping[str, Callable[[Request, bytes], Answer]] = {
    "cut": cut,
    "records": records,
    "row_groups": row_groups,
    "rows": rows,
}
"""By the `type` of a request."""
