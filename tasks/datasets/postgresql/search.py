"""What tables hold, as they are listed and searched: exactly, or by an HNSW index where the table has one."""

from collections.abc import Awaitable, Callable, Sequence
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
    ExportedPart,
    ExportPart,
    ExportRow,
    Filter,
    Found,
    StoredChunk,
    StoredDocument,
)
from tasks.datasets.hybrid_search import searched_words
from tasks.datasets.postgresql.connection import Connection, Database, know_vectors
from tasks.datasets.postgresql.load import clean
from tasks.datasets.postgresql.schema import Access, TableName, dataset_row, entered, resolved, size_bytes
from tasks.errors import Invalid, NotReady

T = TypeVar("T")

_POSITION_BITS = 24
"""Of a chunk's number: that of its document, and behind it its index."""
_CHUNK = (
    f'd.number << {_POSITION_BITS} | c.chunk_index, c.doc_id, c.chunk_index, c.text, c.start, c."end", c.page,'
    " array_to_json(c.headings)::text, c.metadata::text"
)
_PART_DOCUMENTS, _PART_CHUNKS = 2048, 8192
"""Of a part of the export."""
# Numbers are never used twice, so those of a part stand for its content; 48 bits of them are a number in its name.
_CHANGED = "('x' || substr(md5(string_agg(number::text, ',' ORDER BY number)), 1, 12))::bit(48)::bigint"


class PostgresContents:
    """Tables as they are listed and searched. See `Contents`. For one thread at a time."""

    def __init__(self, name: str, database: Database, table: TableName, access: Access) -> None:
        """Connects later. `name`: for the head."""
        self._name, self._table, self._access = name, table, access
        self._connection = Connection(database)

    def close(self) -> None:
        """See `Contents.close`."""
        self._connection.close()

    def head(self) -> DatasetHead:
        """See `Contents.head`."""

        async def work(connection: Any) -> DatasetHead:
            t = self._table
            row = await dataset_row(connection, t, self._access)
            made = await connection.fetchrow(
                f"SELECT c.model, d.vectors, vector_dims(c.embedding) FROM {t.chunks} c"
                f" JOIN {t.documents} d USING (doc_id) LIMIT 1"
            )
            model, vectors, dimension = made or ("", "", 0)
            return DatasetHead(
                *(row.id, self._name, row.version, row.created_ms, row.written_ms, dimension, vectors, model),
                *(row.documents, row.chunks, await size_bytes(connection, [t])),
            )

        return self._run(work)

    def documents(self, after: int, limit: int) -> DocumentPage:
        """See `Contents.documents`."""

        async def work(connection: Any) -> DocumentPage:
            t = self._table
            rows = await connection.fetch(
                "SELECT d.number, d.doc_id, d.chunks, c.source_uri, c.metadata::text, array_to_json(c.headings)::text,"
                " d.warnings"
                f" FROM (SELECT * FROM {t.documents} WHERE number > $1 AND chunks > 0 ORDER BY number LIMIT $2) d"
                # LIMIT: one look by the index for each, also where the server has no statistics of a new table yet.
                f" CROSS JOIN LATERAL (SELECT * FROM {t.chunks} WHERE doc_id = d.doc_id AND chunk_index = 0 LIMIT 1) c"
                " ORDER BY d.number",
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
                f" AND number >= $1::bigint >> {_POSITION_BITS} ORDER BY number LIMIT $3) d"
                f" JOIN {t.chunks} c USING (doc_id)"
                f" WHERE d.number << {_POSITION_BITS} | c.chunk_index > $1 ORDER BY 1 LIMIT $2",
                after,
                limit + 1,
                limit + 2,
                document_id,
            )
            return ChunkPage([StoredChunk(*row) for row in rows[:limit]], more=len(rows) > limit)

        return self._run(work)

    def export_parts(self) -> Sequence[ExportPart]:
        """See `Contents.export_parts`."""

        async def work(connection: Any) -> list[ExportPart]:
            rows = await connection.fetch(
                f"SELECT min(number), {_CHANGED}, sum(chunks)::bigint FROM ({_pieces(self._table)}) d"
                " GROUP BY bucket, piece ORDER BY 1"
            )
            return [ExportPart(*row) for row in rows]

        return self._run(work)

    def export_rows(self, part: ExportPart) -> ExportedPart | None:
        """See `Contents.export_rows`."""

        async def work(connection: Any) -> ExportedPart | None:
            t = self._table
            bucket = part.first // _PART_DOCUMENTS * _PART_DOCUMENTS
            of = await connection.fetchrow(
                f"SELECT array_agg(number), {_CHANGED}, sum(chunks)::bigint"
                f" FROM ({_pieces(t, 'AND number >= $1 AND number < $2')}) d GROUP BY piece HAVING min(number) = $3",
                *(bucket, bucket + _PART_DOCUMENTS, part.first),
            )
            if of is None or of[1] != part.changed:
                return None
            rows = await connection.fetch(
                'SELECT c.doc_id, d.fingerprint, c.chunk_index, c.text, c.start, c."end", c.page,'
                " array_to_json(c.headings)::text, c.token_count, c.truncated, c.source_uri, c.content_hash,"
                " c.metadata::text, c.embedding, c.model, c.model_revision"
                f" FROM {t.documents} d JOIN {t.chunks} c ON c.doc_id = d.doc_id"
                " WHERE d.number = ANY($1::bigint[]) ORDER BY d.number, c.chunk_index",
                of[0],
            )
            if len(rows) != of[2]:  # a load has come between, or somebody else has removed some
                return None
            found = [ExportRow(*row) for row in rows]
            as_bytes = [row._replace(embedding=np.asarray(row.embedding, "<f4").tobytes()) for row in found]
            row = await dataset_row(connection, t, self._access)
            return ExportedPart(row.id, len(found[0].embedding), as_bytes)

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
                " (SELECT c.chunk_id, ts_rank_cd(c.words, q) AS rank"
                f" FROM {t.chunks} c, to_tsquery('simple', $1) q WHERE c.words @@ q AND {where}"
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
            if await entered(connection, self._table, self._access) is None:
                raise DatasetGone
            await know_vectors(connection)
            return await work(connection)

        return self._connection.run(found, progress)


def _pieces(table: TableName, among: str = "") -> str:
    """Documents and their part of the export: by their numbers, so that a change touches one, and by their chunks."""
    bucket = f"number / {_PART_DOCUMENTS}"
    before = f"(sum(chunks) OVER (PARTITION BY {bucket} ORDER BY number) - chunks)::bigint"
    return (
        f"SELECT number, chunks, {bucket} AS bucket, {before} / {_PART_CHUNKS} AS piece"
        f" FROM {table.documents} WHERE chunks > 0 {among}"
    )


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
