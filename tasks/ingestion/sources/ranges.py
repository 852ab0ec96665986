"""Ranges of a file of records: the worker's side of `tabular.py`. It trusts no answer of the sandbox."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import orjson

from tasks.document_error import DocumentError, DocumentFailed
from tasks.ingestion.parsing.sandbox import ChildFailed
from tasks.ingestion.sources.content import Content, changed, open_path
from tasks.ingestion.sources.csv_table import HEAD_BYTES
from tasks.ingestion.sources.record import Described, Range, Record, require_id, too_long
from tasks.records.ingestions import is_too_deep

T = TypeVar("T")
Ask: TypeAlias = Callable[..., Any]
"""`Sandbox.ask`."""
_BLOCK_BYTES = 2**18
"""That are read to find a range. A page of short records needs half of it. All units of UTF-32 in it are whole."""


class CutBlock(NamedTuple):
    """A range as it is listed.

    Attributes:
        records: how many there seem to be in it.
        source_bytes: of the file.
        then: where the next one is cut; JSON.
        error: why nothing of it can be read.
    """

    range: Range
    records: int
    source_bytes: int
    then: Any
    error: DocumentError | None = None


class RecordFile:
    """How the files of a request are divided and read that are of one format.

    Args:
        kind: `jsonl`, `csv`, `tsv` or `parquet`.
        fields: of the request.
        limit: bytes of a record.
        ask: the sandbox.
    """

    def __init__(self, kind: str, fields: Mapping[str, Any], limit: int, ask: Ask) -> None:
        self._kind, self._limit, self._ask = kind, limit, ask
        self._request = {"format": kind, "fields": fields, "limit": limit}
        self._known: tuple[Any, Any] = (None, None)

    def cut(
        self, content: Content, position: Any, room: tuple[int, int], progress: Callable[[], None]
    ) -> CutBlock | None:
        """The range at a position, None: at the beginning; of so many records and bytes, but one record at least.

        Returns:
            None at the end of the file.

        Raises:
            DocumentFailed: the file is not of this format.
            StorageUnavailable: it does not answer now.
        """
        if self._kind == "parquet":
            return self._cut_rows(content, position or (0, 0, 1), room, progress)
        if not content.size_bytes and self._kind != "jsonl":
            raise DocumentFailed("empty_document", "The file is empty, without a header.", "listing")
        at, number, skip = position or (0, 1, False)
        size = _BLOCK_BYTES
        while at < content.size_bytes:
            progress()
            block = _read(content, at, min(size, content.size_bytes - at))
            whole = at + len(block) >= content.size_bytes
            wanted = {"at": at, "whole": whole, "skip": skip, "records": max(room[0], 1), "bytes": max(room[1], 1)}
            start, length, numbers, records, skip = self._asked(
                "cut", content, block, wanted, partial(_cut, len(block), whole)
            )
            if length:
                found = Range(at + start, length, number)
                error = DocumentError(*too_long("line", self._limit), "listing") if skip else None
                return CutBlock(found, records, length, (found.end, number + numbers, skip), error)
            if not start:
                size *= 2
            at += start
        return None

    def read(self, content: Content, wanted: Range, progress: Callable[[], None]) -> Iterator[Record]:
        """The records of a range, each with the range of it alone.

        Raises:
            DocumentFailed: the rest of it cannot be read.
            StorageUnavailable: it does not answer now.
        """
        while wanted.length > 0:
            progress()
            if self._kind == "parquet":
                with open_path(content, progress) as path:
                    key = f"{content.name} {content.version} {content.size_bytes} {self._request['fields']}"
                    rows = {"path": path, "key": key, "group": wanted.group, "rows": wanted.length}
                    rows |= {"at": wanted.start, "number": wanted.number}
                    found = self._asked("rows", content, b"", rows, partial(_records, wanted, 1))
            else:
                block = _read(content, wanted.start, wanted.length)
                place = {"at": wanted.start, "number": wanted.number}
                found = self._asked("records", content, block, place, partial(_records, wanted, 0))
            yield from found
            if self._kind != "parquet":
                return
            wanted = wanted.behind(found[-1][0])

    def _cut_rows(
        self, content: Content, position: Any, room: tuple[int, int], progress: Callable[[], None]
    ) -> CutBlock | None:
        group, row, number = position
        groups = self._row_groups(content, progress)
        all_rows = sum(rows for rows, _ in groups)
        while group < len(groups):
            rows, size = groups[group]
            if row < rows:
                least = max(1, min(room[0], room[1] // (size // rows + 1), rows - row))
                found = Range(row, least, number, group)
                source_bytes = content.size_bytes * least // all_rows
                return CutBlock(found, least, source_bytes, (group, found.end, number + least))
            group, row = group + 1, 0
        return None

    def _row_groups(self, content: Content, progress: Callable[[], None]) -> Sequence[tuple[int, int]]:
        def asked() -> Sequence[tuple[int, int]]:
            with open_path(content, progress) as path:
                return self._asked("row_groups", content, b"", {"path": path}, _groups)

        return cast("Sequence[tuple[int, int]]", self._once(content, asked))

    def _asked(
        self,
        what: str,
        content: Content,
        block: bytes,
        more: Mapping[str, Any],
        read: Callable[[dict[str, Any], bytes], T],
    ) -> T:
        head = b""
        if self._kind in {"csv", "tsv"}:
            head = cast("bytes", self._once(content, lambda: content.read(0, HEAD_BYTES)))
        request = {"type": what, **self._request, **more, "head": len(head)}
        return cast("T", self._ask(request, head + block, read, stage="reading"))

    def _once(self, content: Content, make: Callable[[], Any]) -> Any:
        """What is the same for all ranges of a file; only that of the last one is kept."""
        key = (content.name, content.version, content.size_bytes)
        if self._known[0] != key:
            self._known = (key, make())
        return self._known[1]


def _read(content: Content, first: int, size: int) -> bytes:
    data = content.read(first, size)
    if len(data) != size:
        raise changed()
    return data


# ---- answers ---------------------------------------------------------------------------------------------------------


def _cut(size: int, whole: bool, answer: Mapping[str, Any], _: bytes) -> tuple[int, int, int, int, bool]:
    start, length, numbers, records = (_number(answer.get(name)) for name in ("start", "length", "numbers", "records"))
    if (length and start + length > size) or (whole and not start + length):
        raise ChildFailed
    return start, length, numbers, records, bool(answer.get("skip"))


def _groups(_: Mapping[str, Any], body: bytes) -> Sequence[tuple[int, int]]:
    return [(_number(rows), _number(size)) for rows, size in _values(body, 2)]


def _records(within: Range, least: int, _: Mapping[str, Any], body: bytes) -> Sequence[Record]:
    found = [_record(values, within) for values in _values(body, len(Range._fields) + len(Described._fields))]
    if len(found) < least:
        raise ChildFailed
    return found


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ChildFailed
    return value


def _values(body: bytes, length: int) -> Sequence[Sequence[Any]]:
    try:
        values = orjson.loads(body)
    except ValueError:
        raise ChildFailed from None
    if not isinstance(values, list) or not all(isinstance(each, list) and len(each) == length for each in values):
        raise ChildFailed
    return values


def _record(values: Sequence[Any], within: Range) -> Record:
    there = Range(*values[: len(Range._fields)])
    described: Any = Described(*values[len(Range._fields) :])
    if any(type(number) is not int for number in there) or there.group != within.group:
        raise ChildFailed
    if not (within.start <= there.start < there.end <= within.end and there.number >= within.number):
        raise ChildFailed
    text, metadata = described.text, described.metadata
    if type(text) is not str or "\0" in text or type(metadata) is not dict or (metadata and is_too_deep(metadata)):
        raise ChildFailed
    if not isinstance(described.id, str | None) or type(described.named) is not bool:
        raise ChildFailed
    if described.id is not None:
        try:
            require_id(described.id)
        except DocumentFailed:
            raise ChildFailed from None
    return there, described if described.error is None else described._replace(error=_error(described.error))


def _error(told: Any) -> tuple[str, str]:
    if not (isinstance(told, list) and len(told) == 2 and all(isinstance(each, str) for each in told)):  # noqa: PLR2004
        raise ChildFailed
    return told[0][:64], told[1][:1000]
