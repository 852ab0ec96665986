"""Loads into the tables of a dataset. Each is one transaction; statements are small, however slow the server is."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from tasks.datasets.loads import Document, Finished, LoadOutcome, Receipt, Stamp, UnreadPart, Verdict
from tasks.datasets.postgresql.connection import Connection, know_vectors
from tasks.datasets.postgresql.schema import (
    CHUNK_COLUMNS,
    RECEIPT_COLUMNS,
    RECEIPT_TYPES,
    TableName,
    dataset_row,
    ensure_tables,
    lock,
    require_alike,
    resolved,
    tables_exist,
)
from tasks.datasets.store import chunk_id, require_same
from tasks.datasets.who_wins import Floors, SilentRoots, Unread, decide, is_deleted
from tasks.pieces import pieces, weighed

ROWS = 1000
"""Rows of one statement. An index over vectors may take 100 ms for each on a slow machine; a statement has 120 s."""
_BYTES = 8 * 2**20
_AT_ONCE = 256
_LOOKED_AT_ONCE = 5_000
_IDLE = "300s"
"""The server ends a transaction that is idle for so long, because its process hangs."""
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")

_Row = tuple[Any, ...]


class PostgresStore:
    """Tables as a dataset. See `Store`. For one thread at a time; several may have one each."""

    def __init__(self, sink: str, url: str, table: str, *, owner: str = "") -> None:
        """Connects later, when it is needed. `owner`: of the documents; "" may load into a table of any owner.

        Raises:
            Invalid: `table` is not a name.
        """
        self._sink, self._owner = sink, owner
        self._table = TableName.from_text(table)
        self._connection = Connection(sink, url)

    def prepare(self, by: Stamp, progress: Callable[[], None]) -> str:
        """See `Store.prepare`."""

        # A transaction of its own, so that other loads need not wait for this one to see the tables.
        async def work(connection: Any) -> str:
            self._table = await resolved(connection, self._table)
            row = await ensure_tables(connection, self._table, by.dimension, self._sink, self._owner)
            await require_alike(connection, self._table, by.vectors)
            return row.id

        return self._connection.run(work, progress)

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """See `Store.known`."""

        async def work(connection: Any) -> Mapping[str, Receipt]:
            self._table = await resolved(connection, self._table)
            if not await tables_exist(connection, self._table):
                return {}
            await dataset_row(connection, self._table, self._owner)
            ids = {clean(name): name for name in document_ids}
            found = await _receipts(connection, self._table, list(ids))
            return {ids[name]: receipt for name, receipt in found.items()}

        return self._connection.run(work)

    def load(
        self, documents: Iterable[Document | UnreadPart], by: Stamp, progress: Callable[[], None]
    ) -> Sequence[LoadOutcome]:
        """See `Store.load`."""

        async def work(connection: Any) -> list[LoadOutcome]:
            change = await self._begun(connection, by, progress)
            await require_alike(connection, self._table, by.vectors)
            await know_vectors(connection)
            outcomes: list[LoadOutcome] = []
            for some in pieces(documents, _AT_ONCE):
                progress()
                outcomes += await change.load([_cleaned(line) for line in some])
            await change.end()
            return outcomes

        self.prepare(by, progress)
        return self._connection.run(work, progress)

    def finish(self, by: Stamp, roots: Sequence[str], progress: Callable[[], None]) -> Finished:
        """See `Store.finish`."""

        async def work(connection: Any) -> Finished:
            change = await self._begun(connection, by, progress)
            finished = await change.finish(roots)
            await change.end()
            return finished

        self.prepare(by, progress)
        return self._connection.run(work, progress)

    def close(self) -> None:
        """See `Store.close`."""
        self._connection.close()

    async def _begun(self, connection: Any, by: Stamp, progress: Callable[[], None]) -> "_Change":
        # A limit on whole transactions would end each repetition of a long load. An idle one is ended.
        await connection.execute(
            "SELECT set_config(name, CASE name WHEN 'transaction_timeout' THEN '0' ELSE $1 END, true) FROM pg_settings"
            " WHERE name IN ('transaction_timeout', 'idle_in_transaction_session_timeout')",
            _IDLE,
        )
        await lock(connection, self._table)
        return await _Change.begin(connection, self._table, by, progress, self._owner)


class _Change:
    """One transaction of one ingestion; `progress` is called before each statement that may take long."""

    def __init__(self, connection: Any, table: TableName, by: Stamp, progress: Callable[[], None]) -> None:
        self._connection, self._table, self._by, self._progress = connection, table, by, progress
        self._synced = 0
        self._unread: dict[str, Unread] = {}
        self._changed = False

    @classmethod
    async def begin(
        cls, connection: Any, table: TableName, by: Stamp, progress: Callable[[], None], owner: str
    ) -> "_Change":
        """Under the lock. Raises `Invalid` where the dataset is another one now."""
        change = cls(connection, table, by, progress)
        row = await dataset_row(connection, table, owner)
        require_same(row.id, by)
        change._synced = row.synced
        unread = await connection.fetch(f"SELECT part, listed, floor FROM {table.unread}")
        change._unread = {part: Unread(part, listed, floor) for part, listed, floor in unread}
        await connection.execute(f"CREATE TEMP TABLE arriving (LIKE {table.chunks}) ON COMMIT DROP")
        return change

    async def load(self, some: Sequence[Document | UnreadPart]) -> list[LoadOutcome]:
        """Judges documents and carries it out. Raises `StaleError`."""
        names = {line.id for line in some if isinstance(line, Document)}
        receipts = await _receipts(self._connection, self._table, list(names))
        before = dict(receipts)
        loaded: dict[str, Document] = {}
        outcomes = []
        for line in some:
            if isinstance(line, UnreadPart):
                outcomes.append(await self._part(line))
                continue
            receipt = receipts.get(line.id)
            floor = 0 if receipt else Floors(self._synced, self._unread.values()).of(line.place)
            brings, after, outcome = decide(line, receipt, self._by, floor)
            outcomes.append(outcome)
            if after is not None:
                receipts[line.id] = after
            if brings:
                loaded[line.id] = line
        for few in weighed(loaded.values(), lambda document: len(document.chunks), 4 * ROWS):
            await self._replace(few)
        changed = [receipt for name, receipt in receipts.items() if receipt is not before.get(name)]
        await self._acknowledge([each for each in changed if each.document_id in loaded], renumbered=True)
        await self._acknowledge([each for each in changed if each.document_id not in loaded], renumbered=False)
        return outcomes

    async def finish(self, roots: Sequence[str]) -> Finished:
        """Deletes what a `sync` deletes. A repetition deletes nothing."""
        table, me = self._table, self._by.ingestion
        before = await self._connection.fetchval(f"SELECT deleted FROM {table.ingestions} WHERE id = $1", me)
        if before is not None:
            mine = {part for part, unread in self._unread.items() if unread.listed == self._by.order}
            return Finished(before, [root for root in roots if root in mine])
        empty = await self._silent(roots)
        for root in empty:
            await self._part(UnreadPart(root))
        deleted, last = 0, ""
        while names := await self._connection.fetch(
            f"SELECT doc_id FROM {table.documents} WHERE doc_id > $1 AND listed < $2 ORDER BY doc_id LIMIT $3",
            last,
            self._by.order,
            _LOOKED_AT_ONCE,
        ):
            last = names[-1][0]
            receipts = await _receipts(self._connection, table, [name for (name,) in names])
            doomed = [r for r in receipts.values() if is_deleted(r, self._by.order, self._unread.values())]
            await self._delete([receipt.document_id for receipt in doomed])
            deleted += sum(bool(receipt.content_hash) for receipt in doomed)
        self._synced = max(self._synced, self._by.order)
        await self._connection.execute(f"INSERT INTO {table.ingestions} VALUES ($1, $2)", me, deleted)
        return Finished(deleted, empty)

    async def end(self) -> None:
        """Writes what has come of it all."""
        await self._connection.execute(
            f"UPDATE {self._table.dataset} SET synced = $1, version = version + $2", self._synced, int(self._changed)
        )

    async def _part(self, line: UnreadPart) -> LoadOutcome:
        there = self._unread.get(line.part)
        if there is None or there.listed < self._by.order:
            floors = Floors(self._synced, self._unread.values())
            self._unread[line.part] = unread = Unread(line.part, self._by.order, floors.of(line.part))
            await self._connection.execute(
                f"INSERT INTO {self._table.unread} VALUES ($1, $2, $3)"
                " ON CONFLICT (part) DO UPDATE SET listed = excluded.listed, floor = excluded.floor",
                *unread,
            )
        return LoadOutcome(Verdict.FAILED)

    async def _silent(self, roots: Sequence[str]) -> list[str]:
        """The roots that have listed nothing while content of them is known."""
        silent, table = SilentRoots(roots), self._table.documents
        for where, look in (("listed_by = $1", silent.listed), ("content_hash <> '' AND $1 <> ''", silent.known)):
            places = await self._connection.cursor(f"SELECT place FROM {table} WHERE {where}", self._by.ingestion)
            while (some := await places.fetch(ROWS)) and look(place for (place,) in some):
                self._progress()
        return silent.missed

    async def _replace(self, documents: Sequence[Document]) -> None:
        """Replaces the chunks of documents."""
        self._changed = True

        def coming() -> set[UUID]:
            return {_chunk_id(document, chunk.index, self._by) for document in documents for chunk in document.chunks}

        await self._delete_chunks([document.id for document in documents], keep=coming)
        rows = (row for document in documents for row in _chunk_rows(document, self._by))
        for some in weighed(rows, lambda row: max(_size_bytes(row), _BYTES // ROWS), _BYTES):
            self._progress()
            await self._connection.copy_records_to_table("arriving", records=some, columns=CHUNK_COLUMNS)
            await self._connection.execute(
                f"INSERT INTO {self._table.chunks} ({_quoted(CHUNK_COLUMNS)}) SELECT {_quoted(CHUNK_COLUMNS)}"
                f" FROM arriving ON CONFLICT (chunk_id) DO UPDATE SET {_all_new(CHUNK_COLUMNS)}"
            )
            await self._connection.execute("TRUNCATE arriving")

    async def _acknowledge(self, receipts: Sequence[Receipt], *, renumbered: bool) -> None:
        """Writes receipts. `renumbered`: behind all others, as their content is new."""
        if not receipts:
            return
        self._progress()
        columns = (*RECEIPT_COLUMNS, "vectors")
        rows = [(*receipt, self._by.vectors) for receipt in receipts]
        given = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate((*RECEIPT_TYPES, "text"), 1))
        # What was only listed keeps the vectors that it has.
        new = _all_new(columns if renumbered else RECEIPT_COLUMNS) + (", number = DEFAULT" if renumbered else "")
        await self._connection.execute(
            f"INSERT INTO {self._table.documents} ({_quoted(columns)}) SELECT * FROM unnest({given})"
            f" ON CONFLICT (doc_id) DO UPDATE SET {new}",
            *(list(column) for column in zip(*rows, strict=True)),
        )

    async def _delete(self, document_ids: Sequence[str]) -> None:
        """Deletes documents with all their chunks and receipts."""
        for some in pieces(document_ids, ROWS):
            self._changed = True
            await self._delete_chunks(some, keep=set)
            self._progress()
            await self._connection.execute(f"DELETE FROM {self._table.documents} WHERE doc_id = ANY($1::text[])", some)

    async def _delete_chunks(self, document_ids: Sequence[str], keep: Callable[[], set[UUID]]) -> None:
        """Deletes chunks of documents except those of `keep`, which is only called if there are any."""
        kept: set[UUID] | None = None
        old = await self._connection.cursor(
            f"SELECT chunk_id FROM {self._table.chunks} WHERE doc_id = ANY($1::text[])", document_ids
        )
        while rows := await old.fetch(ROWS):
            kept = keep() if kept is None else kept
            doomed = [row[0] for row in rows if row[0] not in kept]
            if doomed:
                self._progress()
                await self._connection.execute(
                    f"DELETE FROM {self._table.chunks} WHERE chunk_id = ANY($1::uuid[])", doomed
                )


async def _receipts(connection: Any, table: TableName, document_ids: Sequence[str]) -> dict[str, Receipt]:
    rows = await connection.fetch(
        f"SELECT {_quoted(RECEIPT_COLUMNS)} FROM {table.documents} WHERE doc_id = ANY($1::text[])", document_ids
    )
    return {row["doc_id"]: Receipt(*row)._replace(how=Verdict(row["how"])) for row in rows}


def clean(text: str) -> str:
    """The text as PostgreSQL can hold it, without NUL. A replacement character keeps all offsets."""
    return text.replace("\0", "\ufffd")


def _cleaned(line: Document | UnreadPart) -> Document | UnreadPart:
    if isinstance(line, UnreadPart):
        return line._replace(part=clean(line.part))
    return line._replace(id=clean(line.id), place=clean(line.place), origin=clean(line.origin))


def _chunk_id(document: Document, index: int, by: Stamp) -> UUID:
    return UUID(chunk_id(document.id, by.fingerprint, index))


def _chunk_rows(document: Document, by: Stamp) -> Iterator[_Row]:
    """In the order of `CHUNK_COLUMNS`."""
    wanted = (len(document.chunks), by.dimension)
    if document.chunks and document.vectors.shape != wanted:
        raise ValueError(f"vectors of shape {document.vectors.shape} for {wanted}")
    metadata = _ESCAPED_NUL.sub(r"\1\\ufffd", orjson.dumps(dict(document.metadata)).decode())
    for chunk, vector in zip(document.chunks, document.vectors, strict=True):
        yield (
            *(
                document.id,
                _chunk_id(document, chunk.index, by),
                chunk.index,
                clean(chunk.text),
                chunk.start,
                chunk.end,
            ),
            *(chunk.page, [clean(heading) for heading in chunk.headings], chunk.token_count, chunk.truncated),
            *(document.place, document.content_hash, metadata, vector, by.model, by.model_revision),
        )


def _size_bytes(row: _Row) -> int:
    return sum(len(value) for value in row if isinstance(value, str)) + int(
        row[CHUNK_COLUMNS.index("embedding")].nbytes
    )


def _quoted(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)  # `end` is a word of its language


def _all_new(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}" = excluded."{column}"' for column in columns)
