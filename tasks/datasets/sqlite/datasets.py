"""The datasets of a server as files below one folder."""

import shutil
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

from tasks.datasets.sqlite.dataset_file import DatasetFile, dataset_names, held_bytes, told
from tasks.datasets.sqlite.load import SqliteStore
from tasks.datasets.sqlite.search import SqliteContents, VectorMemory


class SqliteDatasets:
    """See `Datasets`. `memory_bytes`: of vectors that searches keep."""

    def __init__(self, folder: Path, memory_bytes: int = 0) -> None:
        self._folder = folder
        self._memory = VectorMemory(memory_bytes)

    def file(self, owner: str, name: str) -> DatasetFile:
        """Of a dataset, which may not exist."""
        return DatasetFile(self._folder, owner, name)

    def store(self, owner: str, name: str, label: str = "") -> SqliteStore:
        """See `Datasets.store`."""
        return SqliteStore(DatasetFile(self._folder, owner, name, label))

    def contents(self, owner: str, name: str) -> SqliteContents:
        """See `Datasets.contents`."""
        return SqliteContents(self.file(owner, name), self._memory)

    def names(self, owner: str) -> list[str]:
        """See `Datasets.names`."""
        return dataset_names(self._folder, owner)

    def delete(self, owner: str, name: str, progress: Callable[[], None] = lambda: None) -> bool:
        """See `Datasets.delete`."""
        with told(name):
            return self.file(owner, name).delete(progress)

    def rename(self, owner: str, name: str, to: str) -> bool:
        """See `Datasets.rename`."""
        with told(name):
            return self.file(owner, name).rename(to)

    def held_bytes(self, owner: str) -> int:
        """See `Datasets.held_bytes`."""
        return held_bytes(self._folder, owner)

    def owners(self) -> list[str]:
        """See `Datasets.owners`."""
        return sorted(folder.name for folder in self._folder.glob("*") if folder.is_dir())

    def purge(self, owner: str, progress: Callable[[], None] = lambda: None) -> None:
        """See `Datasets.purge`."""
        for name in self.names(owner):
            self.delete(owner, name, progress)
        with told(owner):
            shutil.rmtree(self._folder / owner, ignore_errors=not (self._folder / owner).exists())

    def forget(self, owners: AbstractSet[str]) -> None:
        """See `Datasets.forget`. Of all, as it is rare, and files of an owner may be gone by now."""
        if owners:
            self._memory.clear()
