"""The datasets of a server as tables of one database."""

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

from tasks.datasets.postgresql.connection import Connection, Database
from tasks.datasets.postgresql.load import PostgresStore
from tasks.datasets.postgresql.schema import (
    Access,
    TableName,
    dataset_tables,
    lock_names,
    say_whose,
    shut,
    size_bytes,
    tables_exist,
)
from tasks.datasets.postgresql.search import PostgresContents

T = TypeVar("T")


class PostgresDatasets:
    """See `Datasets`. `url`: may hold a password."""

    def __init__(self, url: str) -> None:
        self._database = Database(url)

    def store(self, owner: str, name: str, label: str = "") -> PostgresStore:
        """See `Datasets.store`."""
        return PostgresStore(self._database, TableName.of_dataset(owner, name, label), Access(owner))

    def contents(self, owner: str, name: str) -> PostgresContents:
        """See `Datasets.contents`."""
        return PostgresContents(name, self._database, TableName.of_dataset(owner, name), Access(owner))

    def names(self, owner: str) -> list[str]:
        """See `Datasets.names`."""
        return sorted(table.dataset.partition("/")[2] for table in self._run(dataset_tables) if table.is_of(owner))

    def delete(self, owner: str, name: str, progress: Callable[[], None] = lambda: None) -> bool:
        """See `Datasets.delete`. Waits for the load that runs."""

        async def work(connection: Any) -> bool:
            table = TableName.of_dataset(owner, name)
            there = await shut(connection, table)
            await connection.execute(f"DROP TABLE IF EXISTS {', '.join(table.all)}")
            return there

        return self._run(work, progress)

    def rename(self, owner: str, name: str, to: str) -> bool:
        """See `Datasets.rename`. Waits for the load that runs."""

        async def work(connection: Any) -> bool:
            old, new = TableName.of_dataset(owner, name), TableName.of_dataset(owner, to)
            labels = {table.name: table.label for table in await dataset_tables(connection)}
            if not await shut(connection, old):
                return False
            await lock_names(connection)
            if await tables_exist(connection, new):
                return False
            for before, after in zip(old.all, new.all, strict=True):
                await connection.execute(f"ALTER TABLE {before} RENAME TO {after}")
            await say_whose(connection, replace(new, label=labels.get(old.name, "")))
            return True

        return self._run(work)

    def held_bytes(self, owner: str) -> int:
        """See `Datasets.held_bytes`."""

        async def work(connection: Any) -> int:
            return await size_bytes(
                connection, [table for table in await dataset_tables(connection) if table.is_of(owner)]
            )

        return self._run(work)

    def owners(self) -> list[str]:
        """See `Datasets.owners`."""
        return sorted({table.dataset.partition("/")[0] for table in self._run(dataset_tables)})

    def purge(self, owner: str, progress: Callable[[], None] = lambda: None) -> None:
        """See `Datasets.purge`."""
        for name in self.names(owner):
            self.delete(owner, name, progress)

    def forget(self, owners: AbstractSet[str]) -> None:
        """See `Datasets.forget`. Nothing is in memory."""

    def _run(self, work: Callable[[Any], Awaitable[T]], progress: Callable[[], None] = lambda: None) -> T:
        with closing(Connection(self._database)) as connection:
            return connection.run(work, progress)
