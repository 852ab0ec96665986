"""What tables hold, as they are listed and searched: exactly, or by an HNSW index where the table has one."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from tasks.datasets.contents import (
    DOCUMENT_ID,
    ChunkPage,
    DatasetGone,
    DatasetHead,
    DocumentPage,
    Filter,
    Found,
    StoredChunk,
    StoredDocument,
)
from tasks.datasets.postgresql.connection import Connection, know_vectors
from tasks.datasets.postgresql.load import clean
from tasks.datasets.postgresql.schema import TableName, dataset_row, resolved, tables_exist
from tasks.datasets.rank import searched_words
from tasks.errors import Invalid, NotReady

T = TypeVar("T")

_POSITION_BITS = 24
"""Of a chunk's number: that of its document, and behind it its index."""
_CHUNK = (
    f'd.number << {_POSITION_BITS} | c.chunk_index, c.doc_id, c.chunk_index, c.text, c.start, c."end", c.page,'
    " array_to_json(c.headings)::text, c.metadata::text"
)


class PostgresContents:
    """Tables as they are listed and searched. See `Contents`. For one thread at a time."""

    def __init__(self, sink: str, url: str, table: str, *, owner: str = "") -> None:
        """Connects later. `owner`: "" reads the tables of anybody. Raises `Invalid`: `table` is not a name."""
        self._name, self._owner = table, owner
        self._table = TableName.from_text(table)
        self._connection = Connection(sink, url)

    def close(self) -> None:
        """See `Contents.close`."""
        self._connection.close()

    def head(self) -> DatasetHead:
        """See `Contents.head`."""

        async def work(connection: Any) -> DatasetHead:
            t = self._table
            row = await dataset_row(connection, t, self._owner)
            counts = await connection.fetchrow(
                f"SELECT count(*), coalesce(sum(chunks), 0)::bigint FROM {t.documents} WHERE content_hash <> ''"
            )
            made = await connection.fetchrow(
                f"SELECT c.model, d.vectors, vector_dims(c.embedding) FROM {t.chunks} c"
                f" JOIN {t.documents} d USING (doc_id) LIMIT 1"
            )
            created_ms = await connection.fetchval(
                f"SELECT (extract(epoch FROM created_at) * 1000)::bigint FROM {t.dataset}"
            )
            size_bytes = await connection.fetchval(
                "SELECT sum(pg_total_relation_size(name::regclass))::bigint FROM unnest($1::text[]) name",
                [t.chunks, t.documents],
            )
            model, vectors, dimension = made or ("", "", 0)
            return DatasetHead(
                *(row.id, self._name, row.version, created_ms, created_ms, dimension, vectors, model),
                *(counts[0], counts[1], size_bytes),
            )

        return self._run(work)

    def documents(self, after: int, limit: int) -> DocumentPage:
        """See `Contents.documents`."""

        async def work(connection: Any) -> DocumentPage:
            t = self._table
            rows = await connection.fetch(
                "SELECT d.number, d.doc_id, d.chunks, d.found, c.metadata::text, array_to_json(c.headings)::text"
                f" FROM {t.documents} d JOIN {t.chunks} c ON c.doc_id = d.doc_id AND c.chunk_index = 0"
                " WHERE d.number > $1 AND d.chunks > 0 ORDER BY d.number LIMIT $2",
                after,
                limit + 1,
            )
            return DocumentPage([StoredDocument(*row) for row in rows[:limit]], more=len(rows) > limit)

        return self._run(work)

    def chunks(self, after: int, limit: int, document_id: str | None = None) -> ChunkPage:
        """See `Contents.chunks`."""

        async def work(connection: Any) -> ChunkPage:
            t = self._table
            # Of so many documents, as each has a chunk: the join need not look at the others.
            of = "d.doc_id = $4" if document_id is not None else "$4::text IS NULL"
            rows = await connection.fetch(
                f"SELECT {_CHUNK} FROM (SELECT number, doc_id FROM {t.documents} d WHERE d.chunks > 0 AND {of}"
                f" AND number >= $1 >> {_POSITION_BITS} ORDER BY number LIMIT $3) d JOIN {t.chunks} c USING (doc_id)"
                f" WHERE d.number << {_POSITION_BITS} | c.chunk_index > $1 ORDER BY 1 LIMIT $2",
                after,
                limit + 1,
                limit + 2,
                document_id,
            )
            return ChunkPage([StoredChunk(*row) for row in rows[:limit]], more=len(rows) > limit)

        return self._run(work)

    def nearest(
        self, vector: npt.NDArray[np.floating], k: int, fields: Filter | None, stopping: Callable[[], bool]
    ) -> list[Found]:
        """See `Contents.nearest`. With an HNSW index over cosines the answer is as exact as that index."""
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0:
            raise ValueError("the query's vector has no direction")

        async def work(connection: Any) -> list[Found]:
            t = self._table
            dimension = await connection.fetchval(f"SELECT vector_dims(embedding) FROM {t.chunks} LIMIT 1")
            if dimension not in {None, len(vector)}:
                raise ValueError(f"the rows have {dimension} numbers and the query {len(vector)}: another model?")
            where, values = filter_sql(fields or {}, first=3)
            # Where there is an index, a filter would leave it with too few rows (pgvector 0.8).
            await connection.execute(
                "SELECT set_config(name, 'strict_order', true) FROM pg_settings WHERE name = 'hnsw.iterative_scan'"
            )
            rows = await connection.fetch(
                f"SELECT near.distance, {_CHUNK} FROM (SELECT c.doc_id, c.chunk_index, c.embedding <=> $1 AS distance"
                f" FROM {t.chunks} c WHERE {where} ORDER BY c.embedding <=> $1 LIMIT $2) near"
                f" JOIN {t.chunks} c ON c.doc_id = near.doc_id AND c.chunk_index = near.chunk_index"
                f" JOIN {t.documents} d ON d.doc_id = c.doc_id ORDER BY near.distance, 2",
                (vector / length).astype(np.float32),
                k,
                *values,
            )
            # A vector of zeros has no distance.
            return [Found(StoredChunk(*row[1:]), 1 - row[0]) for row in map(tuple, rows) if row[0] == row[0]]

        return self._unless(stopping, work)

    def words(self, text: str, k: int, fields: Filter | None, stopping: Callable[[], bool]) -> list[Found]:
        """See `Contents.words`: ranked by `ts_rank_cd`, for the configuration `simple`."""
        wanted = searched_words(clean(text))

        async def work(connection: Any) -> list[Found]:
            if not wanted:
                return []
            t = self._table
            where, values = filter_sql(fields or {}, first=3)
            rows = await connection.fetch(
                f"SELECT near.rank, {_CHUNK} FROM"
                " (SELECT c.chunk_id, ts_rank_cd(to_tsvector('simple', c.text), q) AS rank"
                f" FROM {t.chunks} c, to_tsquery('simple', $1) q WHERE to_tsvector('simple', c.text) @@ q AND {where}"
                f" ORDER BY rank DESC, c.chunk_id LIMIT $2) near JOIN {t.chunks} c USING (chunk_id)"
                f" JOIN {t.documents} d ON d.doc_id = c.doc_id ORDER BY near.rank DESC, 2",
                " | ".join(f"'{word}'" for word in wanted),
                k,
                *values,
            )
            return [Found(StoredChunk(*row[1:]), row[0]) for row in map(tuple, rows)]

        return self._unless(stopping, work)

    def _unless(self, stopping: Callable[[], bool], work: Callable[[Any], Awaitable[T]]) -> T:
        def progress() -> None:
            if stopping():
                raise NotReady("This process is stopping; send the request again.", retry_after_s=1)

        progress()
        return self._run(work, progress)

    def _run(self, work: Callable[[Any], Awaitable[T]], progress: Callable[[], None] = lambda: None) -> T:
        async def found(connection: Any) -> T:
            self._table = await resolved(connection, self._table)
            if not await tables_exist(connection, self._table):
                raise DatasetGone
            await know_vectors(connection)
            return await work(connection)

        return self._connection.run(found, progress)


def filter_sql(fields: Filter, first: int) -> tuple[str, list[Any]]:
    """A condition on chunks `c`, and its values: parameters from number `first` on. See `contents.Filter`."""
    terms, values = ["true"], list[Any]()
    for name, value in fields.items():
        at = f"${first + len(values)}"
        if name == DOCUMENT_ID:
            terms.append(f"c.doc_id = {at}::text")
            values.append(value if isinstance(value, str) else None)
        elif "\0" in name or (isinstance(value, str) and "\0" in value):
            raise Invalid("invalid_value", "filter must have no zero byte: PostgreSQL holds none.", param="filter")
        else:
            terms.append(f"(c.metadata @> {at}::jsonb OR c.metadata @> ${first + len(values) + 1}::jsonb)")
            values += [orjson.dumps({name: each}).decode() for each in (value, [value])]
    return " AND ".join(terms), values
