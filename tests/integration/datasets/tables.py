"""Tables of a test's database, opened as a request that names them opens them."""

from tasks.datasets.postgresql.connection import Database
from tasks.datasets.postgresql.load import PostgresStore
from tasks.datasets.postgresql.schema import Access, TableName
from tasks.datasets.postgresql.search import PostgresContents
from tests.pg_server import PgServer


def table_store(
    postgres: PgServer,
    database: str,
    table: str = "docs",
    *,
    owner: str = "me",
    anywhere: bool = False,
    user: str = "postgres",
) -> PostgresStore:
    """To be closed."""
    return store_at(postgres.url(database, user=user), table, owner=owner, anywhere=anywhere)


def store_at(url: str, table: str = "docs", *, owner: str = "me", anywhere: bool = False) -> PostgresStore:
    """Likewise, by a URL."""
    return PostgresStore(Database(url, "here"), TableName.from_text(table), Access(owner, anywhere))


def table_contents(
    postgres: PgServer, database: str, table: str = "docs", *, owner: str = "me", anywhere: bool = False
) -> PostgresContents:
    """To be closed."""
    return PostgresContents(
        table, Database(postgres.url(database), "here"), TableName.from_text(table), Access(owner, anywhere)
    )
