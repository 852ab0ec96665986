"""Parquet, in the sandbox: one row, one document. See `tabular.py`.

The library that reads it is in C++ and believes what a file says of itself: one of 550 bytes, whose rows share a text,
made a worker hold 4 GB.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.refusals import missing, refused
from tasks.ingestion.sources.record import (
    Answer,
    Described,
    FieldMap,
    Range,
    Request,
    places_of,
    record_to_json,
    too_long,
)

_BATCH_BYTES = 2**20
_BATCH_ROWS = 1024
_ANSWER_BYTES = 2 * 2**20
_BUFFER_BYTES = 2**18


def row_groups(request: Request, _: bytes) -> Answer:
    """Rows and bytes of each group. Raises `DocumentFailed`: it is no Parquet, or lacks the columns asked for."""
    table = _Table(request["path"], FieldMap.from_request(request["fields"]))
    return {}, orjson.dumps(table.groups)


def rows(request: Request, _: bytes) -> Answer:
    """The first rows of a range, as many as go into an answer, at least one. Raises `DocumentFailed`."""
    fields, at = FieldMap.from_request(request["fields"]), request["at"]
    table = _tables.pop(request["key"], None)
    if table is None or (request["group"], at) < table.earliest:
        table = _Table(request["path"], fields)
    found, size = list[bytes](), 0
    for number in range(request["number"], request["number"] + request["rows"]):
        record = table.row(request["group"], at, request["limit"])
        described = Described(error=too_long("row", request["limit"])) if record is None else fields.described(record)
        found.append(record_to_json((Range(at, 1, number, request["group"]), described)))
        at, size = at + 1, size + len(found[-1])
        if size > _ANSWER_BYTES:
            break
    # A group can only be read from its beginning: the next pages, mostly of the same process, go on here.
    _tables.clear()
    _tables[request["key"]] = table
    return {}, b"[" + b",".join(found) + b"]"


_tables: dict[str, "_Table"] = {}


class _Table:
    """A file of Parquet that is read forwards, batch by batch, and only the columns that are needed.

    Attributes:
        groups: rows and bytes of each.
        earliest: group and row of the earliest row that can still be reached.
    """

    def __init__(self, path: str, fields: FieldMap) -> None:
        with _corrupt_if_refused():
            import pyarrow as pa  # noqa: PLC0415 - slow to import
            import pyarrow.parquet as pq  # noqa: PLC0415 - as above

            schema = pq.read_schema(path)
            texts = [
                each.name for each in schema if pa.types.is_string(each.type) or pa.types.is_large_string(each.type)
            ]
            # Without pre_buffer: it would hold a whole row group, and a file may be a single one. Text columns as
            # dictionaries: a text that a thousand rows share is in memory once, as in the file.
            self._file = pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES, read_dictionary=texts)
            meta = self._file.metadata
            groups = map(meta.row_group, range(meta.num_row_groups))
            self.groups = [(group.num_rows, group.total_byte_size) for group in groups]
        self._columns = _columns(fields, schema)
        self._batches: Iterator[Any] = iter(())
        self._values: Mapping[str, Any] = {}
        self._length = 0
        self.earliest = (-1, 0)

    def row(self, group: int, row: int, limit: int) -> dict[str, Any] | None:
        """A row; None if its texts have more than `limit` bytes: no objects are made of them."""
        with _corrupt_if_refused():
            if self.earliest[0] != group:
                self._begin(group)
            while row >= self.earliest[1] + self._length:
                batch = next(self._batches)
                self.earliest = (group, self.earliest[1] + self._length)
                self._length = batch.num_rows
                self._values = dict(zip(batch.schema.names, batch.columns, strict=True))
            values = {name: column[row - self.earliest[1]] for name, column in self._values.items()}
            if sum(map(_text_bytes, values.values())) > limit:
                return None
            return {name: value.as_py() for name, value in values.items()}

    def _begin(self, group: int) -> None:
        count, size = self.groups[group]
        batch = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (size // max(count, 1) + 1)))
        self._batches = self._file.iter_batches(batch, row_groups=[group], columns=self._columns, use_threads=False)
        self.earliest, self._length, self._values = (group, 0), 0, {}


def _columns(fields: FieldMap, schema: Any) -> list[str]:
    """Those that are to be read; bytes are left out of `*`. Raises `DocumentFailed`: not as they are asked for."""
    places = places_of(fields.columns(schema.names), schema.names)
    columns = {name: _holds_bytes(schema.field(at).type) for name, at in places.items()}
    for name in fields.needed(schema.names):
        if columns.get(name):
            message = f"The column {name!r:.80} holds bytes. Write it as strings, or name another in source.fields."
            raise refused("invalid_header", message)
    return [name for name, holds_bytes in columns.items() if not holds_bytes]


def _holds_bytes(kind: Any) -> bool:
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return any(map(_holds_bytes, inner)) if inner else "binary" in str(kind)


@contextmanager
def _corrupt_if_refused() -> Iterator[None]:
    """Turns the library's errors about a damaged file into the failure of a document."""
    try:
        yield
    except (DocumentFailed, MemoryError):
        raise
    except ImportError:
        raise missing("pyarrow") from None
    except Exception:  # noqa: BLE001 - what a library in C++ says of a damaged file
        raise _corrupt() from None


def _corrupt() -> DocumentFailed:
    return refused("corrupt_document", "The file is damaged, or is not Parquet. Write it again.")


def _text_bytes(value: Any) -> int:
    scalar = getattr(value, "value", value)
    return scalar.as_buffer().size if hasattr(scalar, "as_buffer") and scalar.is_valid else 0
