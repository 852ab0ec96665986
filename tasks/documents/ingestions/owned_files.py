"""An owner's uploaded files, looked up when they are asked for: a request may name many, and a page needs few."""

from collections.abc import Iterator, Mapping

from tasks.documents.sources.access import StoredFile
from tasks.ledger import Ledger
from tasks.ledger.file_operations import read_file


class OwnedFiles(Mapping[str, StoredFile]):
    """By id; those of others are not there. Raises `RedisUnavailable` whenever it is asked."""

    def __init__(self, ledger: Ledger, owner: str) -> None:
        self._ledger = ledger
        self._owner = owner
        self._known: dict[str, StoredFile] = {}

    def __getitem__(self, file_id: str) -> StoredFile:
        if file_id not in self._known:
            record = self._ledger.run(read_file(file_id))
            if record is None or record.owner != self._owner:
                raise KeyError(file_id)
            self._known[file_id] = StoredFile(file_id, record.stored, record.filename, record.size_bytes)
        return self._known[file_id]

    def __iter__(self) -> Iterator[str]:
        """Those that were asked for."""
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
