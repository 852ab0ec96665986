"""The tables of a dataset in PostgreSQL: made where they are missing, checked where they are there.

docs             chunks with their vectors: what readers want, and all that they need to know
docs_documents   receipts (who_wins.py)
docs_ingestions  syncs that have ended here
docs_unread      parts of sources that could not be listed
docs_dataset     one row: id, owner, order of the last sync
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import asyncpg

from tasks.datasets.postgresql.connection import schema_of_vectors
from tasks.errors import Invalid

MAX_DIMENSION = 16_000
"""Of pgvector's type `vector`."""
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '60s'"
"""A longer wait counts as a server that does not answer."""
CHUNK_COLUMNS = (
    *("doc_id", "chunk_id", "chunk_index", "text", "start", "end", "page", "headings", "token_count", "truncated"),
    *("source_uri", "content_hash", "metadata", "embedding", "model", "model_revision"),
)
RECEIPT_COLUMNS = (
    *("doc_id", "content_hash", "fingerprint", "chunks", "decided", "decided_by", "listed", "listed_by"),
    *("place", "found", "origin", "how"),
)
RECEIPT_TYPES = ("text", "text", "text", "bigint", "bigint", "text", "bigint", "text", "text", "text", "text", "text")
_BESIDE = ("documents", "ingestions", "unread", "dataset")

_TRIES = 5
# Errors when two sessions create the same thing at the same moment. "IF NOT EXISTS" does not prevent them.
_RACED = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateFunctionError,
    asyncpg.InternalServerError,  # "tuple concurrently updated"
)
# PostgreSQL cuts names at 63 bytes, and "_ingestions" and "_doc_id_idx" come behind the table's.
_NAME = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]{0,49})\.)?([A-Za-z_][A-Za-z0-9_]{0,49})")


@dataclass(frozen=True, slots=True)
class TableName:
    """The table of chunks, and those beside it. Names are kept as they are written."""

    schema: str | None
    name: str

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From `table` or `schema.table`.

        Raises:
            Invalid: it is neither.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise Invalid(
                "invalid_value",
                "sink.table must be table or schema.table, each of at most 50 letters, digits and _, "
                "beginning with no digit.",
                param="sink.table",
            )
        return cls(match[1], match[2])

    @property
    def chunks(self) -> str:
        """Quoted, as all of them."""
        return self._quoted(self.name)

    @property
    def documents(self) -> str:
        """Of receipts."""
        return self._quoted(f"{self.name}_documents")

    @property
    def ingestions(self) -> str:
        """Of syncs."""
        return self._quoted(f"{self.name}_ingestions")

    @property
    def unread(self) -> str:
        """Of parts."""
        return self._quoted(f"{self.name}_unread")

    @property
    def dataset(self) -> str:
        """Of one row."""
        return self._quoted(f"{self.name}_dataset")

    def _quoted(self, name: str) -> str:
        return f'"{self.schema}"."{name}"' if self.schema else f'"{name}"'


class DatasetRow(NamedTuple):
    """The row of a dataset. `id`: one that is made later under the same name has another."""

    id: str
    owner: str
    synced: int
    version: int


async def resolved(connection: Any, table: TableName) -> TableName:
    """The same with its schema: one table has one name, however a request spells it."""
    if table.schema:
        return table
    schema = await connection.fetchval(
        "SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE c.oid = to_regclass($1)), current_schema())",
        table.chunks,
    )
    return TableName(schema, table.name)


async def ensure_tables(connection: Any, table: TableName, dimension: int, sink: str, owner: str) -> DatasetRow:
    """Creates what is missing; within a transaction, which should end soon afterwards. The row of the dataset.

    What is created belongs to `owner`, "" for nobody.

    Raises:
        Invalid: pgvector is missing and cannot be created; the tables are not ours, are another owner's, hold vectors
            of another dimension, or may not be changed.
    """
    if dimension > MAX_DIMENSION:
        raise Invalid(
            "sink_refused",
            f"PostgreSQL's vectors have at most {MAX_DIMENSION:,} dimensions, and this model makes {dimension:,}. "
            "Ask for fewer.",
        )
    if not await tables_exist(connection, table):
        await connection.execute(LOCK_TIMEOUT)
        # One lock for all tables: the extension is the whole database's.
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('embedq:tables', 0))")
        for left in reversed(range(_TRIES)):
            try:
                async with connection.transaction():  # within the other: what fails is undone, and the rest goes on
                    await _create(connection, table, dimension, sink, owner)
                break
            except _RACED:  # with a session that does not use our lock
                if not left:
                    raise
    await _require_dimension(connection, table, dimension)
    await _require_columns(connection, table.documents, RECEIPT_COLUMNS)
    await dataset_row(connection, table, owner)
    await _require_rights(connection, table, sink)
    emptied = await connection.fetchval(
        f"SELECT EXISTS (SELECT 1 FROM {table.documents} WHERE chunks > 0)"
        f" AND NOT EXISTS (SELECT 1 FROM {table.chunks})"
    )
    if emptied:  # by somebody else
        await lock(connection, table)
        await _begin_anew(connection, table)
    return await dataset_row(connection, table, owner)


async def tables_exist(connection: Any, table: TableName) -> bool:
    """Whether all of them do, so something may have been loaded."""
    names = [table.chunks, *(getattr(table, name) for name in _BESIDE)]
    return bool(
        await connection.fetchval("SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1::text[]) name", names)
    )


async def dataset_row(connection: Any, table: TableName, owner: str) -> DatasetRow:
    """The row of the dataset.

    Raises:
        Invalid: it is another owner's. Documents of two owners with one id would replace one another.
    """
    row = DatasetRow(*await connection.fetchrow(f"SELECT id, owner, synced, version FROM {table.dataset}"))
    if owner and row.owner and row.owner != owner:
        raise Invalid(
            "sink_refused",
            f"The table {table.chunks} belongs to another API key. Name another table, or have the limits of your key "
            "name this one: embedq keys limits NAME --sinks CONNECTION/TABLE.",
            param="sink.table",
        )
    return row


async def lock(connection: Any, table: TableName) -> None:
    """One writer at a time until the end of the transaction, whatever the request calls the table."""
    await connection.execute(LOCK_TIMEOUT)
    oid = await connection.fetchval("SELECT to_regclass($1)::oid::bigint", table.documents)
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('embedq:' || $1::text, 0))", str(oid))


async def _create(connection: Any, table: TableName, dimension: int, sink: str, owner: str) -> None:
    await _ensure_extension(connection, sink)
    schema = await schema_of_vectors(connection)
    made = [name for name, sql in _tables(table, dimension, schema) if await _made(connection, name, sql)]
    await _require_columns(connection, table.documents, RECEIPT_COLUMNS)
    if table.dataset in made:
        values = (secrets.token_hex(16), owner)
        await connection.execute(f"INSERT INTO {table.dataset} (id, owner) VALUES ($1, $2)", *values)
    if table.chunks in made:
        await _begin_anew(connection, table)
    elif table.documents in made and await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table.chunks})"):
        raise Invalid(
            "sink_refused",
            f"The table {table.chunks} has rows, and the table of their documents is gone, so nobody knows what they "
            "are. Drop or empty it, or name another table.",
            param="sink.table",
        )


async def _begin_anew(connection: Any, table: TableName) -> None:
    """Receipts of chunks that are gone would say "unchanged" for ever. Who is at work is told by the other id."""
    for each in (table.documents, table.ingestions, table.unread):
        await connection.execute(f"DELETE FROM {each}")
    await connection.execute(f"UPDATE {table.dataset} SET id = $1, synced = 0", secrets.token_hex(16))


async def _made(connection: Any, name: str, sql: str) -> bool:
    if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", name):
        return False
    await connection.execute(sql)
    return True


async def _ensure_extension(connection: Any, sink: str) -> None:
    if await connection.fetchval("SELECT true FROM pg_extension WHERE extname = 'vector'"):
        return
    if not await connection.fetchval("SELECT true FROM pg_available_extensions WHERE name = 'vector'"):
        raise Invalid(
            "sink_refused",
            f"The server of sink {sink!r} has no pgvector. Install it there "
            "(Debian: apt install postgresql-NN-pgvector), then retry.",
            param="sink.name",
        )
    try:
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except asyncpg.InsufficientPrivilegeError:  # also of a database's owner, where pgvector is not marked as trusted
        raise Invalid(
            "sink_refused",
            f"The database of sink {sink!r} lacks the extension vector, and its user may not create it. "
            "Have a superuser run in that database: CREATE EXTENSION vector;",
            param="sink.name",
        ) from None


async def _require_rights(connection: Any, table: TableName, sink: str) -> None:
    """Checks the rights for a load, which changes rows and uses a temporary table."""
    rights = "SELECT, INSERT, UPDATE, DELETE"
    for name in (table.chunks, *(getattr(table, each) for each in _BESIDE)):
        all_rights = " AND ".join(f"has_table_privilege($1, '{right}')" for right in rights.split(", "))
        if not await connection.fetchval(f"SELECT {all_rights}", name):
            raise Invalid(
                "sink_refused",
                f"The user of sink {sink!r} may not change the table {name}. Grant it {rights}, or name another table.",
                param="sink.table",
            )
    if not await connection.fetchval("SELECT has_database_privilege(current_database(), 'TEMPORARY')"):
        raise Invalid(
            "sink_refused",
            f"The user of sink {sink!r} may not make temporary tables. Grant it TEMPORARY on the database.",
            param="sink.name",
        )


async def require_alike(connection: Any, table: TableName, vectors: str) -> None:
    """Checks one of the receipts, as all are alike. Under the lock, or another load may come between.

    Raises:
        Invalid: the table holds vectors that cannot be compared with these.
    """
    held = await connection.fetchval(f"SELECT vectors FROM {table.documents} WHERE chunks > 0 LIMIT 1")
    if held not in {None, vectors}:
        raise Invalid(
            "sink_model_mismatch",
            f"The table {table.chunks} holds vectors of {held}, and these would be of {vectors}: no search can compare "
            "them. Name another table, or drop this one and those beside it, and load all of it again.",
            param="sink.table",
        )


async def _require_columns(connection: Any, table: str, columns: Sequence[str]) -> dict[str, str]:
    """The columns of the table: name -> type. Refuses a table that lacks one."""
    kinds = await connection.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) AS kind FROM pg_attribute"
        " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
        table,
    )
    types = {row["attname"]: row["kind"] for row in kinds}
    missing = [column for column in columns if column not in types]
    if missing:
        raise Invalid(
            "sink_refused",
            f"The table {table} is there and is not one of this embedq's: it lacks {', '.join(missing)}. "
            "Name another table.",
            param="sink.table",
        )
    return types


async def _require_dimension(connection: Any, table: TableName, dimension: int) -> None:
    types = await _require_columns(connection, table.chunks, CHUNK_COLUMNS)
    held = re.search(r"vector\((\d+)\)$", types["embedding"])
    if held is None or int(held[1]) != dimension:
        what = f"vectors of {held[1]} dimensions" if held else f"{types['embedding']} as embedding"
        raise Invalid(
            "sink_dimension_mismatch",
            f"The table {table.chunks} holds {what}, and this model makes {dimension}. "
            "Name another table, or the model with which it was made.",
            param="sink.table",
        )


def _tables(table: TableName, dimension: int, schema: str) -> list[tuple[str, str]]:
    """Names of all, and how to make each. `schema`: of the extension, which may be on no search path."""
    return [
        (
            table.chunks,
            f"""
            CREATE TABLE {table.chunks} (
                doc_id text COLLATE "C" NOT NULL, chunk_id uuid PRIMARY KEY, chunk_index integer NOT NULL,
                text text NOT NULL, start bigint NOT NULL, "end" bigint NOT NULL, page integer,
                headings text[] NOT NULL, token_count integer NOT NULL, truncated boolean NOT NULL,
                source_uri text NOT NULL, content_hash text NOT NULL, metadata jsonb NOT NULL,
                embedding "{schema}".vector({dimension}) NOT NULL, model text NOT NULL, model_revision text NOT NULL);
            CREATE INDEX ON {table.chunks} (doc_id);
            CREATE INDEX ON {table.chunks} USING gin (to_tsvector('simple', text));
            """,
        ),
        (
            table.documents,
            f"""
            CREATE TABLE {table.documents} (
                number bigint GENERATED ALWAYS AS IDENTITY UNIQUE, doc_id text COLLATE "C" PRIMARY KEY,
                content_hash text NOT NULL, fingerprint text NOT NULL, chunks bigint NOT NULL, decided bigint NOT NULL,
                decided_by text COLLATE "C" NOT NULL, listed bigint NOT NULL, listed_by text COLLATE "C" NOT NULL,
                place text COLLATE "C" NOT NULL, found text COLLATE "C" NOT NULL, origin text NOT NULL,
                how text NOT NULL, vectors text NOT NULL)
            """,
        ),
        (
            table.ingestions,
            f'CREATE TABLE {table.ingestions} (id text COLLATE "C" PRIMARY KEY, deleted bigint NOT NULL)',
        ),
        (
            table.unread,
            f'CREATE TABLE {table.unread} (part text COLLATE "C" PRIMARY KEY, listed bigint NOT NULL, floor bigint)',
        ),
        (
            table.dataset,
            f"""
            CREATE TABLE {table.dataset} (
                id text NOT NULL, owner text NOT NULL, synced bigint NOT NULL DEFAULT 0,
                version bigint NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now())
            """,
        ),
    ]
