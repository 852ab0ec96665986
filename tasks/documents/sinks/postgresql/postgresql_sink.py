"""The PostgreSQL sink: a table of chunks with pgvector, and beside it one of receipts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tasks.datasets.postgresql.connection import Connection, know_vectors
from tasks.documents.sinks.postgresql.schema import (
    LOCK_TIMEOUT,
    ensure_tables,
    require_alike,
    require_owner,
    table_exists,
)
from tasks.documents.sinks.postgresql.table import RECEIPT, Table, quoted
from tasks.documents.sinks.postgresql.table_rows import ChangingRows, clean
from tasks.documents.sinks.sink import Arrivals, LoadDocument, LoadOutcome, Receipt, Stamp
from tasks.pieces import pieces, weighed

_AT_ONCE = 256
_CHUNKS_AT_ONCE = 4096
_SEEN_AT_ONCE = 10_000
_LOOKED_AT_ONCE = 5_000
_RECEIPT = RECEIPT[:-1]
"""The columns that a `Receipt` holds."""
_IDLE = "300s"
"""The server ends a transaction that is idle for so long, because its process hangs."""


class PostgresSink:
    """A table as a sink. See `Sink`. For one thread at a time; several may have one each."""

    def __init__(self, name: str, url: str, table: str, *, owner: str = "") -> None:
        """Connects later, when it is needed. `owner`: of the documents; "" may load into a table of any owner.

        Raises:
            Invalid: `table` is not a name.
        """
        self._name = name
        self._table = Table.from_text(table)
        self._owner = owner
        self._connection = Connection(name, url)

    def prepare(self, stamp: Stamp, progress: Callable[[], None]) -> None:
        """See `Sink.prepare`."""

        # A transaction of its own, so that other loads need not wait for this one to see the tables.
        async def work(connection: Any) -> None:
            await ensure_tables(connection, self._table, stamp.dimension, self._name, self._owner)
            await require_alike(connection, self._table, stamp.vectors)

        self._connection.run(work, progress)

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """See `Sink.known`; raises like `load`."""

        async def work(connection: Any) -> Mapping[str, Receipt]:
            if not await table_exists(connection, self._table):
                return {}
            await require_owner(connection, self._table, self._owner)
            return await self._receipts(connection, document_ids)

        return self._connection.run(work)

    def load(
        self, documents: Iterable[LoadDocument], stamp: Stamp, progress: Callable[[], None]
    ) -> Mapping[str, Sequence[LoadOutcome]]:
        """See `Sink.load`."""
        arrivals = Arrivals(stamp)

        async def work(connection: Any) -> None:
            await self._begin(connection)
            await require_alike(connection, self._table, stamp.vectors)
            await know_vectors(connection)
            rows = ChangingRows(connection, self._table, progress)
            await rows.begin()
            for some in pieces(documents, _AT_ONCE):
                progress()
                receipts = await self._receipts(connection, [document.id for document in some])
                taken = [document for document in some if _goes_in(document, receipts.get(document.id), arrivals)]
                for few in weighed(taken, lambda document: len(document.chunks), _CHUNKS_AT_ONCE):
                    await rows.replace(few, stamp)
                await rows.acknowledge([arrivals.taken[document.id] for document in taken], stamp)

        self.prepare(stamp, progress)
        self._connection.run(work, progress)
        return arrivals.outcomes

    def keep_only(
        self,
        seen: Callable[[], Iterator[str]],
        stamp: Stamp,
        progress: Callable[[], None],
        allow: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> int:
        """See `Sink.keep_only`."""

        async def work(connection: Any) -> int:
            await self._begin(connection)
            rows = ChangingRows(connection, self._table, progress)
            await connection.execute(
                'CREATE TEMP TABLE seen (doc_id text COLLATE "C") ON COMMIT DROP; CREATE INDEX ON seen (doc_id)'
            )
            for some in pieces(seen(), _SEEN_AT_ONCE):
                progress()
                records = [(clean(document_id),) for document_id in some]
                await connection.copy_records_to_table("seen", records=records)
            deleted, last = 0, ""
            while page := await self._unseen(connection, last, stamp):
                doomed = [document_id for document_id, unseen in page if unseen]
                allow(doomed)
                await rows.delete(doomed)
                deleted += len(doomed)
                last = page[-1][0]
            return deleted

        self.prepare(stamp, progress)
        return self._connection.run(work, progress)

    def close(self) -> None:
        """See `Sink.close`."""
        self._connection.close()

    async def _begin(self, connection: Any) -> None:
        await connection.execute(LOCK_TIMEOUT)
        # A limit on whole transactions would end each repetition of a long load. An idle one is ended.
        await connection.execute(
            "SELECT set_config(name, CASE name WHEN 'transaction_timeout' THEN '0' ELSE $1 END, true) FROM pg_settings"
            " WHERE name IN ('transaction_timeout', 'idle_in_transaction_session_timeout')",
            _IDLE,
        )
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", self._table.lock)

    async def _receipts(self, connection: Any, document_ids: Sequence[str]) -> dict[str, Receipt]:
        ids = {clean(document_id): document_id for document_id in document_ids}
        rows = await connection.fetch(
            f"SELECT {quoted(_RECEIPT)} FROM {self._table.documents} WHERE doc_id = ANY($1::text[])",
            list(ids),
        )
        return {ids[row[0]]: Receipt(ids[row[0]], *row[1:]) for row in rows}

    async def _unseen(self, connection: Any, after: str, stamp: Stamp) -> list[tuple[str, bool]]:
        """The next documents behind an id, and whether each was not seen and is not of a newer ingestion."""
        rows = await connection.fetch(
            "SELECT doc_id, ingestion_order <= $2 AND NOT EXISTS (SELECT 1 FROM seen WHERE seen.doc_id = d.doc_id)"
            f" FROM (SELECT doc_id, ingestion_order FROM {self._table.documents} WHERE doc_id > $1"
            " ORDER BY doc_id LIMIT $3) d ORDER BY doc_id",
            after,
            stamp.order,
            _LOOKED_AT_ONCE,
        )
        return [(row[0], row[1]) for row in rows]


def _goes_in(document: LoadDocument, receipt: Receipt | None, arrivals: Arrivals) -> bool:
    wanted = (len(document.chunks), arrivals.stamp.dimension)
    if document.vectors.shape != wanted:
        raise ValueError(f"vectors of shape {document.vectors.shape} for {wanted}")
    size, content_hash = len(document.chunks), document.content_hash
    return arrivals.add(document.id, document.page, content_hash, size, receipt, origin=document.origin)
