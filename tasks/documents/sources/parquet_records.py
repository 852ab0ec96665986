"""Parquet: one row, one document."""

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.documents.faults import DocumentFailed
from tasks.documents.sources.content import Content
from tasks.documents.sources.fields import FieldMap, listing_error
from tasks.documents.sources.records import Record
from tasks.errors import EmbedqError

_BATCH_BYTES = 2**20
_BATCH_ROWS = 1024
_BUFFER_BYTES = 2**18
_TABLES_KEPT = 4


class Parquet:
    """Columns that are needed, in batches. Numbers are those of rows, from 1."""

    def __init__(self, fields: FieldMap, max_record_bytes: int) -> None:
        self._fields = fields
        self._max_bytes = max_record_bytes

    def records(self, content: Content, key: str, position: Any, progress: Callable[[], None]) -> Iterator[Record]:
        """See `RecordFormat`. A position is a row group, a row in it, and the number of rows before."""
        group, row, number = position or (0, 0, 0)
        with _Borrowed(content, f"list {key}", self._fields, (group, row)) as table:
            source_bytes = content.size_bytes // max(table.number_of_rows, 1)
            while table.seek(group, row, progress):
                group, row = table.at
                size_bytes, fields = table.next()
                place = (group, row)
                row += 1
                number += 1
                error = None
                if size_bytes > self._max_bytes:
                    limit = f"{self._max_bytes:,} bytes (EMBEDQ_INGEST_MAX_DOCUMENT_BYTES)"
                    fields, error = None, listing_error("document_too_large", f"The row has more than {limit}.")
                then = (group, row, number)
                yield Record(number, fields, size_bytes, source_bytes, place, then, error)

    def again(
        self, content: Content, key: str, places: Sequence[Any], progress: Callable[[], None]
    ) -> Iterator[Mapping[str, Any]]:
        """See `RecordFormat`."""
        if not places:
            return
        with _Borrowed(content, f"read {key}", self._fields, tuple(places[0])) as table:
            for group, row in places:
                if not table.seek(group, row, progress) or table.at != (group, row):
                    raise _corrupt()
                yield table.next()[1] or {}


class _Table:
    """A file that is read forwards, from batch to batch."""

    def __init__(self, content: Content, fields: FieldMap) -> None:
        with _refused():
            # Without pre_buffer: it would hold a whole row group, and a file may be a single one.
            source = pa.PythonFile(_Readable(content), mode="r")
            self._file = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            self.number_of_rows = self._file.metadata.num_rows
            schema = self._file.schema_arrow
        plain = [name for name in schema.names if not _is_binary(schema.field(name).type)]
        self._columns = fields.columns(plain)
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rows: list[dict[str, Any]] = []
        self._group, self._first = -1, 0
        self._at = self._length = 0

    @property
    def earliest(self) -> tuple[int, int]:
        """Row group and row back to which it can go without beginning anew."""
        return self._group, self._first

    @property
    def at(self) -> tuple[int, int]:
        """Row group and row that `next` gives."""
        return self._group, self._first + self._at

    def seek(self, group: int, row: int, progress: Callable[[], None]) -> bool:
        """Goes to a row, or where its group has none, to the next group's first. Whether there is one."""
        with _refused():
            if self._group != group or row < self._first:
                self._begin(group)
            while self._group < self._file.num_row_groups:
                self._at = row - self._first
                if self._at < len(self._rows):
                    return True
                progress()
                if not self._load_batch(row):
                    self._begin(self._group + 1)
                    row = 0
        return False

    def next(self) -> tuple[int, dict[str, Any] | None]:
        """Roughly the size of the row where it stands, and its fields; then it stands at the following one."""
        fields = self._rows[self._at]
        self._at += 1
        return sum(len(value) for value in fields.values() if isinstance(value, str)), fields

    def _begin(self, group: int) -> None:
        self._rows, self._group, self._first, self._at = [], group, 0, 0
        self._length = 0
        if group < self._file.num_row_groups:
            found = self._file.metadata.row_group(group)
            each = found.total_byte_size // max(found.num_rows, 1) + 1
            rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // each))
            self._batches = self._file.iter_batches(rows, row_groups=[group], columns=self._columns, use_threads=False)

    def _load_batch(self, row: int) -> bool:
        """The next batch; whether there was one. One that lies before the row is not made into objects."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._first += self._length
        self._length = batch.num_rows
        self._rows = batch.to_pylist() if row < self._first + self._length else []
        return True


class _Borrowed:
    """A table from those that were last used, and back to them.

    A row group can only be read from its beginning. Pages are listed and read one after the other, mostly by the same
    process: it goes on where the page before ended instead of reading a large row group anew for each.
    """

    _kept: ClassVar[OrderedDict[tuple[Any, ...], _Table]] = OrderedDict()
    _lock = threading.Lock()

    def __init__(self, content: Content, key: str, fields: FieldMap, place: tuple[int, int]) -> None:
        self._key = (key, content.version, content.size_bytes, fields)
        self._content = content
        self._fields = fields
        self._place = place

    def __enter__(self) -> _Table:
        with self._lock:
            table = self._kept.pop(self._key, None)
        if table is None or table.earliest > self._place:
            table = _Table(self._content, self._fields)
        self._table = table
        return table

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and kind is not GeneratorExit:  # whatever state it is in now
            return
        with self._lock:
            self._kept[self._key] = self._table
            while len(self._kept) > _TABLES_KEPT:
                self._kept.popitem(last=False)


class _Readable(io.RawIOBase):
    """A content as a file to seek in."""

    def __init__(self, content: Content) -> None:
        super().__init__()
        self._content = content
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._content.size_bytes}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._content.size_bytes - self._at, 0)
        data = self._content.read(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data


class _refused:  # noqa: N801 - used as a function
    """Turns what the library says about a damaged file into a document's failure."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, EmbedqError | DocumentFailed | MemoryError) or not isinstance(error, Exception):
            return
        raise _corrupt() from None


def _corrupt() -> DocumentFailed:
    return DocumentFailed("corrupt_document", "The file is damaged, or is not Parquet.", "listing")


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))
