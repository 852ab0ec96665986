"""Creates the tables of a PostgreSQL sink, and checks that those that exist are what they should be."""

import re
from collections.abc import Sequence
from typing import Any

import asyncpg

from tasks.documents.sinks.postgresql.table import COLUMNS, RECEIPT, Table
from tasks.errors import Invalid
from tasks.ledger.redis_keys import ANONYMOUS

MAX_DIMENSION = 16_000
"""Of pgvector's type `vector`."""
LOCK_TIMEOUT = "SET LOCAL lock_timeout = '60s'"
"""A longer wait counts as a server that does not answer."""

_TRIES = 5
_MADE_BY = "embedq: loaded by the API key "
# Errors when two sessions create the same thing at the same moment. "IF NOT EXISTS" does not prevent them.
_RACED = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateFunctionError,
    asyncpg.InternalServerError,  # "tuple concurrently updated"
)


async def ensure_tables(connection: Any, table: Table, dimension: int, sink: str, owner: str) -> None:
    """Creates what is missing; within a transaction, which should end soon afterwards.

    What is created belongs to `owner`, "" for nobody. Raises like `require_owner`, and:

    Raises:
        Invalid: pgvector is missing and cannot be created, or the tables are not ours.
        Invalid: the table holds vectors of another dimension.
    """
    if dimension > MAX_DIMENSION:
        raise Invalid(
            "sink_refused",
            f"PostgreSQL's vectors have at most {MAX_DIMENSION:,} dimensions, and this model makes {dimension:,}. "
            "Ask for fewer.",
        )
    if await _exists(connection, table.rows) and await table_exists(connection, table):
        await _require_dimension(connection, table, dimension)
        await _require_columns(connection, table.documents, RECEIPT)
        await require_owner(connection, table, owner)
        await _require_rights(connection, table, sink)
        return
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
    await _require_rights(connection, table, sink)


async def require_owner(connection: Any, table: Table, owner: str) -> None:
    """Checks whose documents the table has: the comment of its table of receipts says it.

    A table without such a comment is open to all: one made without a key, or by an embedq that had no such comments.

    Raises:
        Invalid: those of another owner. Documents of two owners with one id would replace one another.
    """
    if not owner:
        return
    comment = await connection.fetchval("SELECT obj_description(to_regclass($1), 'pg_class')", table.documents)
    if comment and comment.startswith(_MADE_BY) and comment != f"{_MADE_BY}{owner}":
        raise Invalid(
            "sink_refused",
            f"The table {table.rows} belongs to another API key. Name another table, or have the limits of your key "
            "name this one: embedq keys limits NAME --sinks CONNECTION/TABLE.",
            param="sink.table",
        )


async def table_exists(connection: Any, table: Table) -> bool:
    """Whether the tables exist, so something may have been loaded."""
    return await _exists(connection, table.documents)


async def _exists(connection: Any, name: str) -> bool:
    return bool(await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", name))


async def _create(connection: Any, table: Table, dimension: int, sink: str, owner: str) -> None:
    await _ensure_extension(connection, sink)
    if await _exists(connection, table.rows):
        await _require_dimension(connection, table, dimension)
    else:
        await connection.execute(_rows_sql(table, dimension))
    if not await table_exists(connection, table):
        await connection.execute(_documents_sql(table))
        if owner and not owner.startswith(ANONYMOUS):  # an id has letters, digits, "-" and "_" alone
            await connection.execute(f"COMMENT ON TABLE {table.documents} IS '{_MADE_BY}{owner}'")
    await _require_columns(connection, table.documents, RECEIPT)
    await require_owner(connection, table, owner)


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


async def _require_rights(connection: Any, table: Table, sink: str) -> None:
    """Checks the rights for a load, which changes rows and uses a temporary table."""
    rights = "SELECT, INSERT, UPDATE, DELETE"
    for name in (table.rows, table.documents):
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


async def require_alike(connection: Any, table: Table, vectors: str) -> None:
    """Checks one of the receipts, as all are alike. Under the lock of `Table`, or another load may come between.

    Raises:
        Invalid: the table holds vectors that cannot be compared with these.
    """
    held = await connection.fetchval(f"SELECT vectors FROM {table.documents} WHERE chunks > 0 LIMIT 1")
    if held not in {None, vectors}:
        raise Invalid(
            "sink_model_mismatch",
            f"The table {table.rows} holds vectors of {held}, and these would be of {vectors}: no search can compare "
            "them. Name another table, or drop this one and its table of documents, and load all of it again.",
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


async def _require_dimension(connection: Any, table: Table, dimension: int) -> None:
    types = await _require_columns(connection, table.rows, COLUMNS)
    held = re.search(r"vector\((\d+)\)$", types["embedding"])
    if held is None or int(held[1]) != dimension:
        what = f"vectors of {held[1]} dimensions" if held else f"{types['embedding']} as embedding"
        raise Invalid(
            "sink_dimension_mismatch",
            f"The table {table.rows} holds {what}, and this model makes {dimension}. "
            "Name another table, or the model with which it was made.",
            param="sink.table",
        )


def _rows_sql(table: Table, dimension: int) -> str:
    return f"""
        CREATE TABLE {table.rows} (
            doc_id text COLLATE "C" NOT NULL,
            chunk_id uuid PRIMARY KEY,
            chunk_index integer NOT NULL,
            text text NOT NULL,
            start bigint NOT NULL,
            "end" bigint NOT NULL,
            page integer,
            headings text[] NOT NULL,
            token_count integer NOT NULL,
            truncated boolean NOT NULL,
            source_uri text NOT NULL,
            content_hash text NOT NULL,
            metadata jsonb NOT NULL,
            embedding vector({dimension}) NOT NULL,
            model text NOT NULL,
            model_revision text NOT NULL
        );
        CREATE INDEX ON {table.rows} (doc_id);
    """


def _documents_sql(table: Table) -> str:
    return f"""
        CREATE TABLE IF NOT EXISTS {table.documents} (
            doc_id text COLLATE "C" PRIMARY KEY,
            content_hash text NOT NULL,
            fingerprint text NOT NULL,
            ingestion text COLLATE "C" NOT NULL,
            page bigint NOT NULL,
            chunks bigint NOT NULL,
            ingestion_order bigint NOT NULL,
            origin text NOT NULL,
            vectors text NOT NULL
        );
    """
