"""A storage that counts what is read of it."""

from pathlib import Path

import pytest

from tasks.storage.folder import LocalFolder
from tasks.storage.storage import Storage


class CountedFolder(LocalFolder):
    """Attributes: `reads`: name, first byte and number of bytes of every read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[tuple[str, int, int]] = []

    def read(self, name: str, first: int, size: int | None) -> bytes:
        data = super().read(name, first, size)
        self.reads.append((name, first, len(data)))
        return data


@pytest.fixture
def folder(tmp_path: Path) -> CountedFolder:
    return CountedFolder.open(tmp_path / "storage")


@pytest.fixture
def storage(folder: CountedFolder) -> Storage:
    return Storage(folder)
