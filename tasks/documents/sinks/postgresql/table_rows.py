"""Rows of a PostgreSQL sink changed in small statements: each takes little time, however slow the server is."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import orjson

from tasks.documents.sinks.postgresql.table import COLUMNS, RECEIPT, Table, quoted
from tasks.documents.sinks.sink import LoadDocument, Receipt, Stamp, chunk_id
from tasks.pieces import pieces, weighed

ROWS = 1000
"""Rows of one statement. An index over vectors may take 100 ms for each on a slow machine; a statement has 120 s."""
_BYTES = 8 * 2**20
_RECEIPT_TYPES = ("text", "text", "text", "text", "bigint", "bigint", "bigint", "text", "text")
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")

_Row = tuple[Any, ...]


class ChangingRows:
    """Changes the rows of a table within a transaction; `progress` is called before each statement."""

    def __init__(self, connection: Any, table: Table, progress: Callable[[], None]) -> None:
        self._connection = connection
        self._table = table
        self._progress = progress

    async def begin(self) -> None:
        """Makes the temporary table for `replace`; once in a transaction."""
        await self._connection.execute(f"CREATE TEMP TABLE arriving (LIKE {self._table.rows}) ON COMMIT DROP")

    async def replace(self, documents: Sequence[LoadDocument], stamp: Stamp) -> None:
        """Replaces the chunks of documents."""
        await self._leave_only(documents, stamp)
        rows = (row for document in documents for row in _rows(document, stamp))
        for some in weighed(rows, lambda row: max(_size_bytes(row), _BYTES // ROWS), _BYTES):
            self._progress()
            await self._connection.copy_records_to_table("arriving", records=some, columns=COLUMNS)
            await self._connection.execute(
                f"INSERT INTO {self._table.rows} ({quoted()}) SELECT {quoted()} FROM arriving"
                f" ON CONFLICT (chunk_id) DO UPDATE SET {_all_new(COLUMNS)}"
            )
            await self._connection.execute("TRUNCATE arriving")

    async def acknowledge(self, receipts: Sequence[Receipt], stamp: Stamp) -> None:
        """Writes receipts."""
        by_id = {clean(r.document_id): r for r in receipts}  # two ids may be the same once they are clean
        columns = zip(*(_receipt_row(receipt, stamp) for receipt in by_id.values()), strict=True)
        if not by_id:
            return
        given = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_RECEIPT_TYPES, 1))
        self._progress()
        await self._connection.execute(
            f"INSERT INTO {self._table.documents} ({quoted(RECEIPT)}) SELECT * FROM unnest({given})"
            f" ON CONFLICT (doc_id) DO UPDATE SET {_all_new(RECEIPT)}",
            *(list(column) for column in columns),
        )

    async def delete(self, document_ids: Sequence[str]) -> None:
        """Deletes documents, as they are written in the table, with all their chunks and receipts."""
        for some in pieces(document_ids, ROWS):
            await self._delete_chunks(some, keep=set)
            self._progress()
            await self._connection.execute(
                f"DELETE FROM {self._table.documents} WHERE doc_id = ANY($1::text[])",
                some,
            )

    async def _leave_only(self, documents: Sequence[LoadDocument], stamp: Stamp) -> None:
        def coming() -> set[UUID]:
            return {
                UUID(chunk_id(document.id, stamp.fingerprint, chunk.index))
                for document in documents
                for chunk in document.chunks
            }

        await self._delete_chunks([clean(document.id) for document in documents], keep=coming)

    async def _delete_chunks(self, document_ids: Sequence[str], keep: Callable[[], set[UUID]]) -> None:
        """Deletes chunks of documents except those of `keep`, which is only called if there are any."""
        kept: set[UUID] | None = None
        old = await self._connection.cursor(
            f"SELECT chunk_id FROM {self._table.rows} WHERE doc_id = ANY($1::text[])",
            document_ids,
        )
        while rows := await old.fetch(ROWS):
            kept = keep() if kept is None else kept
            doomed = [row[0] for row in rows if row[0] not in kept]
            if not doomed:
                continue
            self._progress()
            await self._connection.execute(
                f"DELETE FROM {self._table.rows} WHERE chunk_id = ANY($1::uuid[])",
                doomed,
            )


def clean(text: str) -> str:
    """The text as PostgreSQL can hold it, without NUL. A replacement character keeps all offsets."""
    return text.replace("\0", "\ufffd")


def _rows(document: LoadDocument, stamp: Stamp) -> Iterator[_Row]:
    """In the order of `COLUMNS`."""
    metadata = _ESCAPED_NUL.sub(r"\1\\ufffd", orjson.dumps(dict(document.metadata)).decode())
    doc_id, uri = clean(document.id), clean(document.uri)
    for chunk, vector in zip(document.chunks, document.vectors, strict=True):
        yield (
            doc_id,
            UUID(chunk_id(document.id, stamp.fingerprint, chunk.index)),
            chunk.index,
            clean(chunk.text),
            chunk.start,
            chunk.end,
            chunk.page,
            [clean(heading) for heading in chunk.headings],
            chunk.token_count,
            chunk.truncated,
            uri,
            document.content_hash,
            metadata,
            vector,
            stamp.model,
            stamp.model_revision,
        )


def _size_bytes(row: _Row) -> int:
    return sum(len(value) for value in row if isinstance(value, str)) + int(row[COLUMNS.index("embedding")].nbytes)


def _receipt_row(receipt: Receipt, stamp: Stamp) -> _Row:
    """In the order of `RECEIPT`."""
    r = receipt
    values = (r.content_hash, r.fingerprint, r.ingestion, r.page, r.chunks, r.order, clean(r.origin))
    return (clean(r.document_id), *values, stamp.vectors)


def _all_new(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}" = excluded."{column}"' for column in columns)
