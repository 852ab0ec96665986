"""The PostgreSQL sink: a table of chunks with pgvector, and beside it one of receipts."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from tasks.documents.sinks.pieces import pieces
from tasks.documents.sinks.postgresql_connection import Connection, know_vectors
from tasks.documents.sinks.postgresql_table import COLUMNS, Table, ensure_tables, quoted, table_exists
from tasks.documents.sinks.types import LoadDocument, LoadOutcome, Receipt, Stamp, chunk_id
from tasks.documents.sinks.verdict import Arrivals

_AT_ONCE = 256
_SEEN_AT_ONCE = 10_000
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_RECEIPT = ("doc_id", "content_hash", "fingerprint", "ingestion", "page", "chunks")


class PostgresSink:
    """A table as a sink. See `Sink`. For one thread at a time; several may have one each."""

    def __init__(self, name: str, url: str, table: str) -> None:
        """Connects later, when it is needed.

        Raises:
            InvalidValue: `table` is not a name.
        """
        self._name = name
        self._table = Table.parse(table)
        self._connection = Connection(name, url)

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """See `Sink.known`; raises like `load`."""

        async def work(connection: Any) -> Mapping[str, Receipt]:
            if not await table_exists(connection, self._table):
                return {}
            return await self._receipts(connection, document_ids)

        return self._connection.run(work)

    def load(
        self, documents: Iterable[LoadDocument], stamp: Stamp, progress: Callable[[], None]
    ) -> Mapping[str, Sequence[LoadOutcome]]:
        """See `Sink.load`."""
        arrivals = Arrivals(stamp)

        async def work(connection: Any) -> None:
            await self._begin(connection, stamp)
            await know_vectors(connection)
            await connection.execute(
                f"CREATE TEMP TABLE arriving (LIKE {self._table.rows}) ON COMMIT DROP;"
                f"CREATE TEMP TABLE taken (LIKE {self._table.documents}) ON COMMIT DROP"
            )
            for some in pieces(documents, _AT_ONCE):
                progress()
                known = await self._receipts(connection, [document.id for document in some])
                rows = [row for document in some for row in _taken(document, known.get(document.id), arrivals)]
                await connection.copy_records_to_table("arriving", records=rows, columns=COLUMNS)
            receipts = [_receipt_row(receipt) for receipt in arrivals.taken.values()]
            await connection.copy_records_to_table("taken", records=receipts, columns=_RECEIPT)
            await self._replace(connection)

        self._connection.run(work, progress)
        return arrivals.outcomes

    def keep_only(self, seen: Callable[[], Iterator[str]], stamp: Stamp, progress: Callable[[], None]) -> int:
        """See `Sink.keep_only`."""

        async def work(connection: Any) -> int:
            await self._begin(connection, stamp)
            await connection.execute('CREATE TEMP TABLE seen (doc_id text COLLATE "C") ON COMMIT DROP')
            for some in pieces(seen(), _SEEN_AT_ONCE):
                progress()
                records = [(_clean(document_id),) for document_id in some]
                await connection.copy_records_to_table("seen", records=records)
            await connection.execute("ANALYZE seen")
            rows, documents = self._table.rows, self._table.documents
            found = await connection.fetchval(
                f"WITH doomed AS (DELETE FROM {documents} d WHERE d.ingestion <= $1"  # noqa: S608 - checked names
                " AND NOT EXISTS (SELECT 1 FROM seen WHERE seen.doc_id = d.doc_id) RETURNING d.doc_id),"
                f" gone AS (DELETE FROM {rows} r USING doomed WHERE r.doc_id = doomed.doc_id)"
                " SELECT count(*) FROM doomed",
                stamp.ingestion,
            )
            return int(found)

        return self._connection.run(work, progress)

    def close(self) -> None:
        """See `Sink.close`."""
        self._connection.close()

    async def _begin(self, connection: Any, stamp: Stamp) -> None:
        await connection.execute("SET LOCAL lock_timeout = '60s'")  # as unavailable as a server that does not answer
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", self._table.lock)
        await ensure_tables(connection, self._table, stamp.dimension, self._name)

    async def _receipts(self, connection: Any, document_ids: Sequence[str]) -> dict[str, Receipt]:
        ids = {_clean(document_id): document_id for document_id in document_ids}
        rows = await connection.fetch(
            f"SELECT {quoted(_RECEIPT)} FROM {self._table.documents} WHERE doc_id = ANY($1::text[])",  # noqa: S608 - checked
            list(ids),
        )
        return {ids[row[0]]: Receipt(ids[row[0]], *row[1:]) for row in rows}

    async def _replace(self, connection: Any) -> None:
        rows, documents = self._table.rows, self._table.documents
        await connection.execute("ANALYZE arriving; ANALYZE taken")  # unanalysed, the planner takes them for huge
        await connection.execute(
            f"DELETE FROM {rows} r USING taken WHERE r.doc_id = taken.doc_id"  # noqa: S608 - checked names
            " AND NOT EXISTS (SELECT 1 FROM arriving a WHERE a.chunk_id = r.chunk_id)"
        )
        await connection.execute(
            f"INSERT INTO {rows} ({quoted()}) SELECT {quoted()} FROM arriving"  # noqa: S608
            f" ON CONFLICT (chunk_id) DO UPDATE SET {_all_new(COLUMNS)}"
        )
        await connection.execute(
            f"INSERT INTO {documents} ({quoted(_RECEIPT)}) SELECT {quoted(_RECEIPT)} FROM taken"  # noqa: S608
            f" ON CONFLICT (doc_id) DO UPDATE SET {_all_new(_RECEIPT)}"
        )


def _taken(document: LoadDocument, known: Receipt | None, arrivals: Arrivals) -> list[tuple[Any, ...]]:
    """Rows of a document, in the order of `COLUMNS`; none if it does not go in."""
    stamp = arrivals.stamp
    wanted = (len(document.chunks), stamp.dimension)
    if document.vectors.shape != wanted:
        raise ValueError(f"vectors of shape {document.vectors.shape} for {wanted}")
    if not arrivals.add(document.id, document.page, document.content_hash, len(document.chunks), known):
        return []
    metadata = _ESCAPED_NUL.sub(r"\1\\ufffd", orjson.dumps(dict(document.metadata)).decode())
    doc_id, uri = _clean(document.id), _clean(document.uri)
    return [
        (
            doc_id,
            UUID(chunk_id(document.id, stamp.fingerprint, chunk.index)),
            chunk.index,
            _clean(chunk.text),
            chunk.start,
            chunk.end,
            chunk.page,
            [_clean(heading) for heading in chunk.headings],
            chunk.token_count,
            chunk.truncated,
            uri,
            document.content_hash,
            metadata,
            vector,
            stamp.model,
            stamp.model_revision,
        )
        for chunk, vector in zip(document.chunks, document.vectors, strict=True)
    ]


def _receipt_row(receipt: Receipt) -> tuple[Any, ...]:
    r = receipt
    return (_clean(r.document_id), r.content_hash, r.fingerprint, r.ingestion, r.page, r.chunks)


def _clean(text: str) -> str:
    # PostgreSQL's text holds no NUL. Another character in its place keeps all offsets.
    return text.replace("\0", "\ufffd")


def _all_new(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}" = excluded."{column}"' for column in columns)
