"""The tables of a dataset in PostgreSQL: made where they are missing, checked where they are there.

docs             chunks with their vectors: what readers want, and all that they need to know
docs_documents   receipts (who_wins.py)
docs_ingestions  syncs that have ended here
docs_unread      parts of sources that could not be listed
docs_dataset     one row: id, owner, order of the last sync, counters

Tables of EMBEDQ_DATASETS are named by a hash of owner and dataset; a comment on the first of them names both.
"""

import asyncio
import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import asyncpg

from tasks.datasets.names import TABLE
from tasks.datasets.postgresql.connection import Database, schema_of_vectors
from tasks.errors import Invalid, SinkUnavailable

MAX_DIMENSION = 16_000
"""Of pgvector's type `vector`."""
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '60s'"
"""A longer wait counts as a server that does not answer."""
CHUNK_COLUMNS = (
    *("doc_id", "chunk_id", "chunk_index", "text", "start", "end", "page", "headings", "token_count", "truncated"),
    *("source_uri", "content_hash", "metadata", "embedding", "model", "model_revision"),
)
RECEIPT_COLUMNS = (
    *("doc_id", "content_hash", "fingerprint", "chunks", "decided", "decided_by", "listed", "listed_by"),
    *("place", "found", "origin", "how", "warnings"),
)
RECEIPT_TYPES = (*("text", "text", "text", "bigint", "bigint", "text", "bigint", "text"), *5 * ("text",))
_INDEXED_CHARS = 100_000
"""Of a chunk's text, for words: an entry of the index has at most 1 MiB."""
_PREFIX = "embedq_"
_COMMENT = "embedq: "
_NO_KEY = "anonymous"
"""Begins the owner of what was made without a key: a table of such an owner is open to all."""

_SHUT_TRIES, _SHUT_PAUSE_S = 120, 0.4
_TRIES = 5
# Errors when two sessions create the same thing at the same moment. "IF NOT EXISTS" does not prevent them.
_RACED = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateFunctionError,
    asyncpg.InternalServerError,  # "tuple concurrently updated"
)


@dataclass(frozen=True, slots=True)
class TableName:
    """The table of chunks, and those beside it. Names are kept as they are written.

    Attributes:
        schema: None: not known yet (`resolved`).
        name: of the table of chunks.
        dataset: `owner/name`; "" for tables that a request names.
        label: of the owner; see `Datasets.store`.
    """

    schema: str | None
    name: str
    dataset: str = ""
    label: str = ""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """From `table` or `schema.table`.

        Raises:
            Invalid: it is neither.
        """
        if re.fullmatch(TABLE, text) is None:
            raise Invalid(
                "invalid_value",
                "sink.table must be table or schema.table, each of at most 50 letters, digits and _, "
                "beginning with no digit.",
                param="sink.table",
            )
        schema, _, name = text.rpartition(".")
        return cls(schema or None, name)

    @classmethod
    def of_dataset(cls, owner: str, name: str, label: str = "") -> Self:
        """Of a dataset of EMBEDQ_DATASETS."""
        dataset = f"{owner}/{name}"
        return cls(None, _PREFIX + hashlib.sha256(dataset.encode()).hexdigest()[:32], dataset, label)

    def is_of(self, owner: str) -> bool:
        """Whether it is a dataset of this owner."""
        return self.dataset.startswith(f"{owner}/")

    @property
    def shown(self) -> str:
        """As its owner knows it, without an article."""
        return f"dataset {self.dataset.partition('/')[2]!r}" if self.dataset else f"table {self.chunks}"

    @property
    def param(self) -> str:
        """Of a request, by which it was named."""
        return "sink.dataset" if self.dataset else "sink.table"

    @property
    def all(self) -> list[str]:
        """Of chunks, and beside it."""
        return [self.chunks, self.documents, self.ingestions, self.unread, self.dataset_row]

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
    def dataset_row(self) -> str:
        """Of one row."""
        return self._quoted(f"{self.name}_dataset")

    def _quoted(self, name: str) -> str:
        return f'"{self.schema}"."{name}"' if self.schema else f'"{name}"'


class Access(NamedTuple):
    """Who asks: an owner, and whether tables of other owners are open to it, as the limits of its key say."""

    owner: str
    anywhere: bool = False


class DatasetRow(NamedTuple):
    """The row of a dataset.

    Attributes:
        id: one that is made later under the same name has another.
        documents, chunks: how many there are, as embedq has counted them.
        created_ms, written_ms: Unix milliseconds.
    """

    id: str
    owner: str
    synced: int
    version: int
    documents: int
    chunks: int
    created_ms: int
    written_ms: int


async def resolved(connection: Any, table: TableName) -> TableName:
    """The same with its schema: one table has one name, however a request spells it."""
    if table.schema:
        return table
    schema = await connection.fetchval(
        "SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE c.oid = to_regclass($1)), current_schema())",
        table.chunks,
    )
    return replace(table, schema=schema)


async def ensure_tables(
    connection: Any, table: TableName, dimension: int, database: Database, access: Access
) -> DatasetRow:
    """Creates what is missing; within a transaction, which should end soon afterwards. The row of the dataset.

    What is created belongs to the owner who asks.

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
    if await entered(connection, table, access) is None:
        await lock_names(connection)
        for left in reversed(range(_TRIES)):
            try:
                async with connection.transaction():  # within the other: what fails is undone, and the rest goes on
                    await _create(connection, table, dimension, database, access)
                break
            except _RACED:  # with a session that does not use our lock
                if not left:
                    raise
    await _require_dimension(connection, table, dimension)
    await _require_columns(connection, table.documents, RECEIPT_COLUMNS)
    await _require_rights(connection, table, database)
    row = await dataset_row(connection, table, access)
    if await was_emptied(connection, table, row):
        await lock(connection, table)
        row = await dataset_row(connection, table, access)
        if await was_emptied(connection, table, row):  # still: a load may have come between
            await _begin_anew(connection, table)
            row = await dataset_row(connection, table, access)
    return row


async def was_emptied(connection: Any, table: TableName, row: DatasetRow) -> bool:
    """Whether somebody else has removed all chunks. Raises `Invalid`: another table is in the place of theirs."""
    if not row.chunks or await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table.chunks})"):
        return False
    await _require_columns(connection, table.chunks, CHUNK_COLUMNS)
    return True


async def tables_exist(connection: Any, table: TableName) -> bool:
    """Whether all of them do, so something may have been loaded."""
    there = "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1::text[]) name"
    return bool(await connection.fetchval(there, table.all))


async def size_bytes(connection: Any, tables: Sequence[TableName]) -> int:
    """Of all of them on the disk, with their indexes."""
    size = "SELECT coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint FROM unnest($1::text[]) name"
    return int(await connection.fetchval(size, [name for table in tables for name in table.all]))


async def entered(connection: Any, table: TableName, access: Access) -> DatasetRow | None:
    """The row of the dataset; None: there is no dataset.

    Every transaction begins so: until its end nobody deletes or renames the dataset under it, as `shut` waits for it.

    Raises:
        Invalid: see `dataset_row`.
    """
    if not await tables_exist(connection, table):
        return None
    try:
        async with connection.transaction():
            return await dataset_row(connection, table, access)
    except asyncpg.UndefinedTableError:
        return None


async def shut(connection: Any, table: TableName) -> bool:
    """Waits until nobody is in the dataset, and lets nobody in until the transaction ends; whether it is there.

    It asks again and again, as all others queue behind a lock that waits.
    """
    for _ in range(_SHUT_TRIES):
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '100ms'")
                await connection.execute(f"LOCK TABLE {table.dataset_row} IN ACCESS EXCLUSIVE MODE")
        except asyncpg.UndefinedTableError:
            return False
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(_SHUT_PAUSE_S)
        else:
            return True
    raise SinkUnavailable(f"The {table.shown} is being loaded or read all the time; try again.", retry_after_s=10)


async def dataset_row(connection: Any, table: TableName, access: Access) -> DatasetRow:
    """The row of the dataset, as it is now.

    Raises:
        Invalid: it is another owner's, as documents of two owners with one id would replace one another; or somebody
            else has removed it.
    """
    found = await connection.fetchrow(
        "SELECT id, owner, synced, version, documents, chunks, (extract(epoch FROM created_at) * 1000)::bigint,"
        f" (extract(epoch FROM written_at) * 1000)::bigint FROM {table.dataset_row}"
    )
    if found is None:
        raise Invalid(
            "sink_refused",
            f"The table {table.dataset_row} has lost its row. Drop it and {table.chunks}, or name another one.",
            param=table.param,
        )
    row = DatasetRow(*found)
    if row.owner not in {"", access.owner} and not access.anywhere:
        raise Invalid(
            "sink_refused",
            f"The table {table.chunks} belongs to another API key. Name another table, or have the limits of your key "
            "name this one: embedq keys limits NAME --sinks CONNECTION/TABLE.",
            param="sink.table",
        )
    return row


async def lock_names(connection: Any) -> None:
    """Until the end of the transaction nobody else makes or renames tables: one lock, as the extension is for all."""
    await connection.execute(_LOCK_TIMEOUT)
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('embedq:tables', 0))")


async def lock(connection: Any, table: TableName) -> None:
    """One writer at a time until the end of the transaction, whatever the request calls the table."""
    await connection.execute(_LOCK_TIMEOUT)
    oid = await connection.fetchval("SELECT to_regclass($1)::oid::bigint", table.documents)
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('embedq:' || $1::text, 0))", str(oid))


async def _create(connection: Any, table: TableName, dimension: int, database: Database, access: Access) -> None:
    if await _is_there(connection, table.dataset_row):  # of tables of somebody else nothing is told
        await dataset_row(connection, table, access)
    await _ensure_extension(connection, database)
    schema = await schema_of_vectors(connection)
    made = [name for name, sql in _tables(table, dimension, schema) if await _made(connection, name, sql)]
    await _require_columns(connection, table.documents, RECEIPT_COLUMNS)
    if table.dataset_row in made:
        owner = "" if access.owner.startswith(_NO_KEY) else access.owner
        values = (secrets.token_hex(16), owner)
        await connection.execute(f"INSERT INTO {table.dataset_row} (id, owner) VALUES ($1, $2)", *values)
    if table.chunks in made:
        await say_whose(connection, table)
        await _begin_anew(connection, table)
    elif table.documents in made and await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {table.chunks})"):
        raise Invalid(
            "sink_refused",
            f"The {table.shown} has rows, and the table of their documents is gone, so nobody knows what they are. "
            "Drop or empty it, or name another one.",
            param=table.param,
        )


async def say_whose(connection: Any, table: TableName) -> None:
    """Says in a comment which dataset it is, if it is one, and whose."""
    if table.dataset:
        comment = "SELECT format('COMMENT ON TABLE %s IS %L', $1::text, $2::text)"
        await connection.execute(
            await connection.fetchval(comment, table.chunks, f"{_COMMENT}{table.dataset} {table.label}".rstrip())
        )


async def dataset_tables(connection: Any) -> list[TableName]:
    """Of all datasets of EMBEDQ_DATASETS."""
    rows = await connection.fetch(
        "SELECT relname, obj_description(oid, 'pg_class') FROM pg_class WHERE relkind = 'r' AND relname ~ $1"
        " AND pg_table_is_visible(oid)",
        f"^{_PREFIX}[0-9a-f]+$",
    )
    found = []
    for name, comment in rows:
        whole, _, label = (comment or "").removeprefix(_COMMENT).partition(" ")
        owner, _, dataset = whole.partition("/")
        found.append((name, TableName.of_dataset(owner, dataset, label)))
    return [table for name, table in found if table.name == name]


async def _begin_anew(connection: Any, table: TableName) -> None:
    """Receipts of chunks that are gone would say "unchanged" for ever. Who is at work is told by the other id."""
    for each in (table.documents, table.ingestions, table.unread):
        await connection.execute(f"DELETE FROM {each}")
    await connection.execute(
        f"UPDATE {table.dataset_row} SET id = $1, synced = 0, documents = 0, chunks = 0", secrets.token_hex(16)
    )


async def _made(connection: Any, name: str, sql: str) -> bool:
    if await _is_there(connection, name):
        return False
    await connection.execute(sql)
    return True


async def _is_there(connection: Any, name: str) -> bool:
    return bool(await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", name))


async def _ensure_extension(connection: Any, database: Database) -> None:
    if await connection.fetchval("SELECT true FROM pg_extension WHERE extname = 'vector'"):
        return
    if not await connection.fetchval("SELECT true FROM pg_available_extensions WHERE name = 'vector'"):
        raise Invalid(
            "sink_refused",
            f"The server of the {database.shown} has no pgvector. Install it there "
            "(Debian: apt install postgresql-NN-pgvector), then retry.",
            param=database.param,
        )
    try:
        async with connection.transaction():
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except asyncpg.InsufficientPrivilegeError:  # also of a database's owner, where pgvector is not marked as trusted
        raise Invalid(
            "sink_refused",
            f"The {database.shown} lacks the extension vector, and its user may not create it. "
            "Have a superuser run in that database: CREATE EXTENSION vector;",
            param=database.param,
        ) from None


async def _require_rights(connection: Any, table: TableName, database: Database) -> None:
    """Checks the rights for a load before anything is encoded for it."""
    rights = ("SELECT", "INSERT", "UPDATE", "DELETE")
    all_rights = " AND ".join(f"has_table_privilege(name, '{right}')" for right in rights)
    closed = await connection.fetchval(
        f"SELECT min(name) FROM unnest($1::text[]) name WHERE NOT ({all_rights})", table.all
    )
    if closed:
        raise Invalid(
            "sink_refused",
            f"The user of the {database.shown} may not change the table {closed}. Grant it {', '.join(rights)}.",
            param=table.param,
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
            f"The {table.shown} holds vectors of {held}, and these would be of {vectors}: no search can compare "
            "them. Name another one, or delete this one (a table with those beside it), and load all of it again.",
            param=table.param,
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
    types = await _require_columns(connection, table.chunks, (*CHUNK_COLUMNS, "words"))
    held = re.search(r"vector\((\d+)\)$", types["embedding"])
    if held is None or int(held[1]) != dimension:
        what = f"vectors of {held[1]} dimensions" if held else f"{types['embedding']} as embedding"
        raise Invalid(
            "sink_dimension_mismatch",
            f"The {table.shown} holds {what}, and this model makes {dimension}. "
            "Name another one, or the model with which it was made.",
            param=table.param,
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
                embedding "{schema}".vector({dimension}) NOT NULL, model text NOT NULL, model_revision text NOT NULL,
                words tsvector GENERATED ALWAYS AS (to_tsvector('simple', left(text, {_INDEXED_CHARS}))) STORED);
            CREATE INDEX ON {table.chunks} (doc_id);
            CREATE INDEX ON {table.chunks} USING gin (words);
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
                how text NOT NULL, warnings text NOT NULL, vectors text NOT NULL)
            """,
        ),
        *(
            (
                table.ingestions,
                f'CREATE TABLE {table.ingestions} (id text COLLATE "C" PRIMARY KEY, deleted bigint NOT NULL)',
            ),
            (table.unread, f"CREATE TABLE {table.unread} (part text NOT NULL, listed bigint NOT NULL, floor bigint)"),
        ),
        (
            table.dataset_row,
            f"""
            CREATE TABLE {table.dataset_row} (
                id text NOT NULL, owner text NOT NULL, synced bigint NOT NULL DEFAULT 0,
                version bigint NOT NULL DEFAULT 0,
                documents bigint NOT NULL DEFAULT 0, chunks bigint NOT NULL DEFAULT 0,
                created_at timestamptz NOT NULL DEFAULT now(), written_at timestamptz NOT NULL DEFAULT now())
            """,
        ),
    ]
