"""Parquet: one row, one document."""

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.document_error import DocumentError, DocumentFailed
from tasks.documents.sources.content import Content
from tasks.documents.sources.record_fields import FieldMap, listing_error
from tasks.documents.sources.records import LIMIT_SETTING, Record
from tasks.errors import EmbedqError

_BATCH_BYTES = 2**20
_BATCH_ROWS = 1024
_LISTED_ROWS = 256
_BUFFER_BYTES = 2**18
_TABLES_KEPT = 4


class Parquet:
    """Reads only the columns that are needed, in batches. Numbers are those of rows, from 1.

    The library that reads it is in C++ and believes what a file says of itself: one of 550 bytes, whose rows share a
    text, made a worker hold 4 GB. Files of callers are read in a process of their own, see `records_process.py`.
    """

    def __init__(self, fields: FieldMap, max_record_bytes: int) -> None:
        self._fields = fields
        self._max_bytes = max_record_bytes

    def records(self, content: Content, position: Any, progress: Callable[[], None]) -> Iterator[Record]:
        """See `RecordFormat`. A position is a row group, a row in it, and the number of rows before."""
        for batch in self.batches(content, position, progress):
            yield from batch

    def batches(self, content: Content, position: Any, progress: Callable[[], None]) -> Iterator[Sequence[Record]]:
        """The same in short lists, within a batch of the table: the next page may begin anywhere in the last list."""
        group, row, number = position or (0, 0, 0)
        with _Borrowed(content, "list", self._fields, (group, row)) as table:
            source_bytes = content.size_bytes // max(table.number_of_rows, 1)
            while table.seek(group, row, progress):
                batch: list[Record] = []
                size_bytes = 0
                while table.has_row and len(batch) < _LISTED_ROWS and size_bytes < _BATCH_BYTES:
                    place = table.at
                    group, row = place[0], place[1] + 1
                    number += 1
                    batch.append(self._record(table, number, source_bytes, place, (group, row, number)))
                    size_bytes += batch[-1].size_bytes
                yield batch

    def _record(self, table: "_Table", number: int, source_bytes: int, place: Any, then: Any) -> Record:
        size_bytes, fields = table.next(self._max_bytes)
        if fields is None:
            error = listing_error(
                "document_too_large", f"The row has more than {self._max_bytes:,} bytes ({LIMIT_SETTING})."
            )
            return Record(number, None, size_bytes, source_bytes, place, then, error)
        return Record(number, self._fields.described(fields), size_bytes, source_bytes, place, then)

    def again(
        self, content: Content, places: Sequence[Any], progress: Callable[[], None]
    ) -> Iterator[str | DocumentError]:
        """See `RecordFormat`."""
        if not places:
            return
        with _Borrowed(content, "read", self._fields, tuple(places[0])) as table:
            for group, row in places:
                if not table.seek(group, row, progress) or table.at != (group, row):
                    raise _corrupt()
                _, fields = table.next(self._max_bytes)
                if fields is None:
                    raise _corrupt()
                yield self._fields.text_or_error(fields)


class _Table:
    """A file read forwards, batch by batch."""

    def __init__(self, content: Content, fields: FieldMap) -> None:
        with _refused():
            # Without pre_buffer: it would hold a whole row group, and a file may be a single one.
            source = pa.PythonFile(RangeFile(content.read, content.size_bytes), mode="r")
            schema = pq.read_schema(source)
            texts = [name for name in schema.names if _is_text(schema.field(name).type)]
            # Text columns as dictionaries: a text that a thousand rows share is in memory once, as in the file.
            self._file = pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER_BYTES, read_dictionary=texts)
            self.number_of_rows = self._file.metadata.num_rows
        plain = [name for name in schema.names if not _is_binary(schema.field(name).type)]
        self._columns = fields.columns(plain)
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._values: Mapping[str, Any] = {}
        self._group, self._first = -1, 0
        self._at = self._length = 0

    @property
    def earliest(self) -> tuple[int, int]:
        """Row group and row of the earliest row that it can still reach without a new start."""
        return self._group, self._first

    @property
    def at(self) -> tuple[int, int]:
        """Row group and row of the row that `next` returns."""
        return self._group, self._first + self._at

    @property
    def has_row(self) -> bool:
        """Whether `next` can return a row without reading."""
        return self._at < self._length

    def seek(self, group: int, row: int, progress: Callable[[], None]) -> bool:
        """Goes to a row, or to the first row of the next group if the group ends before it. Whether there is one."""
        with _refused():
            if self._group != group or row < self._first:
                self._begin(group)
            while self._group < self._file.num_row_groups:
                self._at = row - self._first
                if self._at < self._length:
                    return True
                progress()
                if not self._load_batch():
                    self._begin(self._group + 1)
                    row = 0
        return False

    def next(self, max_bytes: int) -> tuple[int, dict[str, Any] | None]:
        """The approximate size of the current row, and its fields; moves on to the next row.

        None in place of the fields if the texts have more than `max_bytes`: no objects are made of them.
        """
        with _refused():
            row = {name: values[self._at] for name, values in self._values.items()}
            self._at += 1
            size_bytes = sum(map(_text_bytes, row.values()))
            return size_bytes, None if size_bytes > max_bytes else {name: value.as_py() for name, value in row.items()}

    def _begin(self, group: int) -> None:
        self._values, self._group, self._first, self._at = {}, group, 0, 0
        self._length = 0
        if group < self._file.num_row_groups:
            row_group = self._file.metadata.row_group(group)
            row_bytes = row_group.total_byte_size // max(row_group.num_rows, 1) + 1
            rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
            self._batches = self._file.iter_batches(rows, row_groups=[group], columns=self._columns, use_threads=False)

    def _load_batch(self) -> bool:
        """The next batch; whether there was one."""
        self._values = {}
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._first += self._length
        self._length = batch.num_rows
        self._values = dict(zip(batch.schema.names, batch.columns, strict=True))
        return True


class _Borrowed:
    """Borrows a table from those that were used last, and returns it to them.

    A row group can only be read from its beginning. Pages are listed and read one after the other, mostly by the same
    process, which continues where the page before ended. So a large row group is not read anew for each page.
    """

    _kept: ClassVar[OrderedDict[tuple[Any, ...], _Table]] = OrderedDict()
    _lock = threading.Lock()

    def __init__(self, content: Content, use: str, fields: FieldMap, place: tuple[int, int]) -> None:
        self._key = (use, content.name, content.version, content.size_bytes, fields)
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
        if kind is not None and kind is not GeneratorExit:  # the state of the table is unknown
            return
        with self._lock:
            self._kept[self._key] = self._table
            while len(self._kept) > _TABLES_KEPT:
                self._kept.popitem(last=False)


class _refused:  # noqa: N801 - used as a function
    """Turns the library's errors about a damaged file into the failure of a document."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, EmbedqError | DocumentFailed | MemoryError) or not isinstance(error, Exception):
            return
        raise _corrupt() from None


def _corrupt() -> DocumentFailed:
    return DocumentFailed("corrupt_document", "The file is damaged, or is not Parquet.", "listing")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_bytes(value: Any) -> int:
    scalar = value.value if isinstance(value, pa.DictionaryScalar) else value
    return (
        scalar.as_buffer().size if isinstance(scalar, pa.StringScalar | pa.LargeStringScalar) and scalar.is_valid else 0
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


class RangeFile(io.RawIOBase):
    """A file that is read by ranges.

    Args:
        read_range: the bytes from one on, as many as are asked for; fewer where they end.
        size_bytes: of all.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__()
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the place; returns it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes; all that are left for None and numbers below 0."""
        left = max(self._size_bytes - self._at, 0)
        data = self._read_range(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data
