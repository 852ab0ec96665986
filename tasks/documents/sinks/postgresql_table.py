"""The tables of a PostgreSQL sink: their names, how they are made, and how they are looked at."""

import re
from dataclasses import dataclass
from typing import Any, Self

from tasks.errors import InvalidValue, SinkDimensionMismatch, SinkRefused

MAX_DIMENSION = 16_000
"""Of pgvector's type `vector`."""

COLUMNS = (
    "doc_id",
    "chunk_id",
    "chunk_index",
    "text",
    "start",
    "end",
    "page",
    "headings",
    "token_count",
    "truncated",
    "source_uri",
    "content_hash",
    "metadata",
    "embedding",
    "model",
    "model_revision",
)

# PostgreSQL cuts names at 63 bytes, and "_documents" and "_doc_id_idx" come behind the table's.
_NAME = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_]{0,49})\.)?([A-Za-z_][A-Za-z0-9_]{0,49})")


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a sink, and beside it that of its documents. Names are kept as they are written."""

    schema: str | None
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `table` or `schema.table`.

        Raises:
            InvalidValue: it is neither.
        """
        found = _NAME.fullmatch(text)
        if found is None:
            raise InvalidValue(
                "sink.table must be table or schema.table, each of at most 50 letters, digits and _, "
                "beginning with no digit.",
                param="sink.table",
            )
        return cls(found[1], found[2])

    @property
    def rows(self) -> str:
        """Quoted name of the table of chunks."""
        return self._quoted(self.name)

    @property
    def documents(self) -> str:
        """Quoted name of the table of receipts."""
        return self._quoted(f"{self.name}_documents")

    @property
    def lock(self) -> str:
        """What writers lock."""
        return f"embedq:{self.rows}"

    def _quoted(self, name: str) -> str:
        return f'"{self.schema}"."{name}"' if self.schema else f'"{name}"'


def quoted(columns: tuple[str, ...] = COLUMNS) -> str:
    """A list of columns for SQL: `end` is a word of its language."""
    return ", ".join(f'"{column}"' for column in columns)


async def ensure_tables(connection: Any, table: Table, dimension: int, sink: str) -> None:
    """Creates what is not there; within a transaction that holds the table's lock.

    Raises:
        SinkRefused: pgvector is not there and cannot be made, or what is there are other tables.
        SinkDimensionMismatch: the table holds vectors of another dimension.
    """
    if dimension > MAX_DIMENSION:
        raise SinkRefused(
            f"PostgreSQL's vectors have at most {MAX_DIMENSION:,} dimensions, and this model makes {dimension:,}."
        )
    await _ensure_extension(connection, sink)
    known = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table.rows)
    if known:
        await _require_dimension(connection, table, dimension)
    else:
        await connection.execute(_rows_sql(table, dimension))
    await connection.execute(_documents_sql(table))


async def table_exists(connection: Any, table: Table) -> bool:
    """Whether something has been loaded before."""
    return bool(await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", table.documents))


async def _ensure_extension(connection: Any, sink: str) -> None:
    if await connection.fetchval("SELECT true FROM pg_extension WHERE extname = 'vector'"):
        return
    if not await connection.fetchval("SELECT true FROM pg_available_extensions WHERE name = 'vector'"):
        raise SinkRefused(
            f"The server of sink {sink!r} has no pgvector. Install it there "
            "(Debian: apt install postgresql-NN-pgvector), then retry.",
            param="sink.name",
        )
    allowed = await connection.fetchval("SELECT has_database_privilege(current_database(), 'CREATE')")
    if not allowed:
        raise SinkRefused(
            f"The database of sink {sink!r} lacks the extension vector, and its user may not create it. "
            "Have an administrator run: CREATE EXTENSION vector;",
            param="sink.name",
        )
    await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")


async def _require_dimension(connection: Any, table: Table, dimension: int) -> None:
    kinds = await connection.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) AS kind FROM pg_attribute"
        " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
        table.rows,
    )
    found = {row["attname"]: row["kind"] for row in kinds}
    missing = [column for column in COLUMNS if column not in found]
    if missing:
        raise SinkRefused(
            f"The table {table.rows} is there and is not one of embedq's: it lacks {', '.join(missing)}. "
            "Name another table.",
            param="sink.table",
        )
    held = re.search(r"vector\((\d+)\)$", found["embedding"])
    if held is None or int(held[1]) != dimension:
        what = f"vectors of {held[1]} dimensions" if held else f"{found['embedding']} as embedding"
        raise SinkDimensionMismatch(
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
            chunks bigint NOT NULL
        );
    """
