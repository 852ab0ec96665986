"""Loads into the tables of a dataset. Each is one transaction; statements are small, however slow the server is."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson

from tasks.datasets.loads import DocumentLoad, Finished, LoadOutcome, Receipt, Stamp, UnreadPart, Verdict
from tasks.datasets.postgresql.connection import Connection, Database, know_vectors
from tasks.datasets.postgresql.schema import (
    CHUNK_COLUMNS,
    RECEIPT_COLUMNS,
    RECEIPT_TYPES,
    Access,
    TableName,
    dataset_row,
    ensure_tables,
    entered,
    lock,
    require_alike,
    resolved,
    was_emptied,
)
from tasks.datasets.store import chunk_id, dataset_gone, require_same
from tasks.datasets.who_wins import Floors, SilentRoots, Unread, decide, is_deleted, silent_before
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

    def __init__(self, database: Database, table: TableName, access: Access) -> None:
        """Connects later, when it is needed."""
        self._database, self._table, self._access = database, table, access
        self._connection = Connection(database)

    def prepare(self, by: Stamp, progress: Callable[[], None]) -> str:
        """See `Store.prepare`."""

        # A transaction of its own, so that other loads need not wait for this one to see the tables.
        async def work(connection: Any) -> str:
            self._table = await resolved(connection, self._table)
            if by.dataset_id and await entered(connection, self._table, self._access) is None:
                raise dataset_gone()
            row = await ensure_tables(connection, self._table, by.dimension, self._database, self._access)
            await require_alike(connection, self._table, by.vectors)
            return row.id

        return self._connection.run(work, progress)

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """See `Store.known`."""

        async def work(connection: Any) -> Mapping[str, Receipt]:
            self._table = await resolved(connection, self._table)
            if await entered(connection, self._table, self._access) is None:
                return {}
            ids = {clean(name): name for name in document_ids}
            found = await _receipts(connection, self._table, list(ids))
            return {ids[name]: receipt for name, receipt in found.items()}

        return self._connection.run(work)

    def load(
        self, documents: Iterable[DocumentLoad | UnreadPart], by: Stamp, progress: Callable[[], None]
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

        if not by.dataset_id:
            self.prepare(by, progress)
        return self._connection.run(work, progress)

    def finish(self, by: Stamp, roots: Sequence[str], progress: Callable[[], None]) -> Finished:
        """See `Store.finish`."""

        async def work(connection: Any) -> Finished:
            change = await self._begun(connection, by, progress)
            finished = await change.finish(roots)
            await change.end()
            return finished

        if not by.dataset_id:
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
        self._table = await resolved(connection, self._table)
        if await entered(connection, self._table, self._access) is None:
            raise dataset_gone()
        await lock(connection, self._table)
        row = await dataset_row(connection, self._table, self._access)
        require_same(row.id, by)
        if await was_emptied(connection, self._table, row):
            raise dataset_gone()
        change = _Change(connection, self._table, by, progress, synced=row.synced)
        await change.begin()
        return change


class _Change:
    """One transaction of one ingestion; `progress` is called before each statement that may take long."""

    def __init__(
        self, connection: Any, table: TableName, by: Stamp, progress: Callable[[], None], *, synced: int
    ) -> None:
        self._connection, self._table, self._by, self._progress = connection, table, by, progress
        self._synced, self._unread = synced, dict[str, Unread]()
        self._changed, self._documents, self._chunks = False, 0, 0

    async def begin(self) -> None:
        """Reads what the dataset knows of sources."""
        rows = await self._connection.fetch(f"SELECT part, listed, floor FROM {self._table.unread}")
        self._unread = {row[0]: Unread(*row) for row in rows}

    async def load(self, some: Sequence[DocumentLoad | UnreadPart]) -> list[LoadOutcome]:
        """Judges documents and carries it out. Raises `StaleError`."""
        names = {line.id for line in some if isinstance(line, DocumentLoad)}
        receipts = await _receipts(self._connection, self._table, list(names))
        before = dict(receipts)
        loaded: dict[str, DocumentLoad] = {}
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
        if loaded:
            await self._delete([before[name] for name in loaded if name in before])
            await self._insert_chunks(loaded.values())
        changed = [receipt for name, receipt in receipts.items() if receipt is not before.get(name)]
        await self._insert([each for each in changed if each.document_id in loaded or each.document_id not in before])
        await self._update([each for each in changed if each.document_id in before and each.document_id not in loaded])
        return outcomes

    async def finish(self, roots: Sequence[str]) -> Finished:
        """Deletes what a `sync` deletes. A repetition deletes nothing."""
        table, me = self._table, self._by.ingestion
        before = await self._connection.fetchval(f"SELECT deleted FROM {table.ingestions} WHERE id = $1", me)
        if before is not None:
            return Finished(before, silent_before(roots, self._unread.values(), self._by.order))
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
            await self._delete(doomed)
            deleted += sum(bool(receipt.content_hash) for receipt in doomed)
        self._synced = max(self._synced, self._by.order)
        await self._connection.execute(f"INSERT INTO {table.ingestions} VALUES ($1, $2)", me, deleted)
        return Finished(deleted, empty)

    async def end(self) -> None:
        """Writes what has come of it all."""
        await self._connection.execute(
            f"UPDATE {self._table.dataset_row} SET synced = $1, version = version + $2, documents = documents + $3,"
            " chunks = chunks + $4, written_at = CASE $2 WHEN 1 THEN now() ELSE written_at END",
            *(self._synced, int(self._changed), self._documents, self._chunks),
        )

    async def _part(self, line: UnreadPart) -> LoadOutcome:
        there = self._unread.get(line.part)
        if there is None or there.listed < self._by.order:
            floors = Floors(self._synced, self._unread.values())
            self._unread[line.part] = unread = Unread(line.part, self._by.order, floors.of(line.part))
            await self._connection.execute(f"DELETE FROM {self._table.unread} WHERE part = $1", line.part)
            await self._connection.execute(f"INSERT INTO {self._table.unread} VALUES ($1, $2, $3)", *unread)
        return LoadOutcome(Verdict.FAILED)

    async def _silent(self, roots: Sequence[str]) -> list[str]:
        """The roots that have listed nothing while content of them is known."""
        silent, table = SilentRoots(roots), self._table.documents
        for where, look in (("listed_by = $1", silent.listed), ("content_hash <> '' AND $1 <> ''", silent.known)):
            places = await self._connection.cursor(f"SELECT place FROM {table} WHERE {where}", self._by.ingestion)
            while (some := await places.fetch(ROWS)) and look(place for (place,) in some):
                self._progress()
        return silent.missed

    async def _insert_chunks(self, documents: Iterable[DocumentLoad]) -> None:
        self._changed = True
        rows = (row for document in documents for row in _chunk_rows(document, self._by))
        for some in weighed(rows, lambda row: max(_size_bytes(row), _BYTES // ROWS), _BYTES):
            self._progress()
            place = {"schema_name": self._table.schema, "columns": CHUNK_COLUMNS}
            await self._connection.copy_records_to_table(self._table.name, records=some, **place)

    async def _insert(self, receipts: Sequence[Receipt]) -> None:
        """Receipts that are new, or of new content. Their numbers are behind all others."""
        if not receipts:
            return
        self._progress()
        rows = [(*receipt, self._by.vectors) for receipt in receipts]
        await self._connection.execute(
            f"INSERT INTO {self._table.documents} ({_quoted((*RECEIPT_COLUMNS, 'vectors'))})"
            f" SELECT * FROM unnest({_arrays((*RECEIPT_TYPES, 'text'))})",
            *(list(column) for column in zip(*rows, strict=True)),
        )
        self._documents += sum(bool(receipt.content_hash) for receipt in receipts)
        self._chunks += sum(receipt.chunks for receipt in receipts)

    async def _update(self, receipts: Sequence[Receipt]) -> None:
        """Receipts whose content stays as it is, or that have none."""
        if not receipts:
            return
        self._progress()
        new = ", ".join(f'"{column}" = new."{column}"' for column in RECEIPT_COLUMNS)
        await self._connection.execute(
            f"UPDATE {self._table.documents} d SET {new} FROM unnest({_arrays(RECEIPT_TYPES)})"
            f" AS new ({_quoted(RECEIPT_COLUMNS)}) WHERE d.doc_id = new.doc_id",
            *(list(column) for column in zip(*receipts, strict=True)),
        )

    async def _delete(self, receipts: Sequence[Receipt]) -> None:
        """Deletes documents with all their chunks and receipts."""
        for some in pieces(receipts, ROWS):
            self._changed = True
            names = [receipt.document_id for receipt in some]
            await self._delete_chunks(names)
            self._progress()
            await self._connection.execute(f"DELETE FROM {self._table.documents} WHERE doc_id = ANY($1::text[])", names)
            self._documents -= sum(bool(receipt.content_hash) for receipt in some)
            self._chunks -= sum(receipt.chunks for receipt in some)

    async def _delete_chunks(self, document_ids: Sequence[str]) -> None:
        old = await self._connection.cursor(
            f"SELECT chunk_id FROM {self._table.chunks} WHERE doc_id = ANY($1::text[])", document_ids
        )
        while rows := await old.fetch(ROWS):
            self._progress()
            await self._connection.execute(
                f"DELETE FROM {self._table.chunks} WHERE chunk_id = ANY($1::uuid[])", [row[0] for row in rows]
            )


async def _receipts(connection: Any, table: TableName, document_ids: Sequence[str]) -> dict[str, Receipt]:
    rows = await connection.fetch(
        f"SELECT {_quoted(RECEIPT_COLUMNS)} FROM {table.documents} WHERE doc_id = ANY($1::text[])", document_ids
    )
    return {row["doc_id"]: Receipt(*row)._replace(how=Verdict(row["how"])) for row in rows}


def clean(text: str) -> str:
    """The text as PostgreSQL can hold it, without NUL. A replacement character keeps all offsets."""
    return text.replace("\0", "\ufffd")


def _cleaned(line: DocumentLoad | UnreadPart) -> DocumentLoad | UnreadPart:
    if isinstance(line, UnreadPart):
        return line._replace(part=clean(line.part))
    return line._replace(id=clean(line.id), place=clean(line.place), origin=clean(line.origin))


def _chunk_id(document: DocumentLoad, index: int, by: Stamp) -> UUID:
    return UUID(chunk_id(document.id, by.fingerprint, index))


def _chunk_rows(document: DocumentLoad, by: Stamp) -> Iterator[_Row]:
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


def _arrays(types: Iterable[str]) -> str:
    return ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types, 1))
