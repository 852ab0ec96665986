"""The index of a dataset's receipts in this process: which part holds which document, for millions of documents.

It is a cache of the receipts in the storage, in a temporary SQLite database of this process: SQLite keeps that in a
file without a name, so memory stays constant and nothing outlives the process.
"""

import hashlib
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from tasks.documents.sinks.parquet.receipts import read_receipts
from tasks.documents.sinks.pieces import pieces
from tasks.documents.sinks.types import Receipt
from tasks.ledger.datasets import Catalog, Part
from tasks.ledger.storage import Storage

_CACHE_KIB = 32 * 1024
_VARIABLES = 500
"""Of one statement; older builds of SQLite take no more than 999."""
_SEEN_AT_ONCE = 10_000
_KEY_BYTES = 16
_MAX_INDEXES = 4
"""Of one storage in one process. Making one anew reads all receipts of the dataset: 262,000 of them took 16 s on a busy
machine with two cores."""

_TABLES = """
PRAGMA synchronous = OFF;
CREATE TABLE parts (id INTEGER PRIMARY KEY, receipts TEXT NOT NULL UNIQUE);
CREATE TABLE stamps (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, ingestion TEXT NOT NULL,
  UNIQUE (fingerprint, ingestion));
CREATE TABLE receipts (key BLOB PRIMARY KEY, part INTEGER NOT NULL, stamp INTEGER NOT NULL, content_hash NOT NULL,
  page INTEGER NOT NULL, chunks INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX receipts_of_part ON receipts (part);
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A receipt, and the name of the object it is in, which tells the part."""

    receipt: Receipt
    receipts: str


class ReceiptIndex:
    """Receipts of one dataset. Several threads may use it, each at its own version of the dataset."""

    def __init__(self, storage: Storage) -> None:
        self._storage = weakref.proxy(storage)  # `index_of` forgets indexes of storages that nobody uses any more
        self._lock = threading.RLock()
        self._tables = count()
        self._synced: frozenset[str] = frozenset()
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._database.executescript(_TABLES)

    def find(
        self, catalog: Catalog, document_ids: Sequence[str], progress: Callable[[], None] = lambda: None
    ) -> Mapping[str, Found]:
        """What a version of the dataset has of some documents, by id.

        Raises:
            NotStored: the version is so old that its receipts are gone.
            StorageUnavailable: they cannot be read.
        """
        with self._lock:
            self._sync(catalog, progress)
            found: dict[str, Found] = {}
            for some in pieces(document_ids, _VARIABLES):
                found.update(self._look_up({key_of(document_id): document_id for document_id in some}))
            return found

    @contextmanager
    def seeing(self, seen: Iterable[str], progress: Callable[[], None]) -> Iterator["Unseen"]:
        """What tells the documents that are not among `seen`."""
        table = f"seen_{next(self._tables)}"
        with self._lock:
            self._database.execute(f"CREATE TEMP TABLE {table} (key BLOB PRIMARY KEY) WITHOUT ROWID")
        try:
            for some in pieces(seen, _SEEN_AT_ONCE):
                keys = sorted(key_of(document_id) for document_id in some)
                with self._lock, self._transaction():
                    self._database.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((k,) for k in keys))  # noqa: S608 - a number of ours
                progress()
            yield Unseen(self, table, progress)
        finally:
            with self._lock:
                self._database.execute(f"DROP TABLE {table}")

    def unseen_of(
        self, catalog: Catalog, part: Part, table: str, ingestion: str, progress: Callable[[], None]
    ) -> set[bytes]:
        """See `Unseen.of`."""
        with self._lock:
            self._sync(catalog, progress)
            rows = self._database.execute(
                "SELECT key FROM receipts JOIN stamps ON stamps.id = stamp"  # noqa: S608 - a number of ours
                " WHERE part = (SELECT id FROM parts WHERE receipts = ?)"
                f" AND ingestion <= ? AND NOT EXISTS (SELECT 1 FROM {table} s WHERE s.key = receipts.key)",
                (part.receipts, ingestion),
            )
            return {key for (key,) in rows}

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._database.close()

    def _sync(self, catalog: Catalog, progress: Callable[[], None]) -> None:
        wanted = frozenset(part.receipts for part in catalog.parts)
        if wanted == self._synced:
            return
        # The old ones first: a document may have moved from one part to another.
        for name in self._synced - wanted:
            self._forget(name)
        for part in catalog.parts:
            if part.receipts not in self._synced:
                self._learn(part.receipts)
                progress()

    def _forget(self, name: str) -> None:
        with self._transaction():
            (part,) = self._database.execute("SELECT id FROM parts WHERE receipts = ?", (name,)).fetchone()
            self._database.execute("DELETE FROM receipts WHERE part = ?", (part,))
            self._database.execute("DELETE FROM parts WHERE id = ?", (part,))
        self._synced -= {name}

    def _learn(self, name: str) -> None:
        rows = read_receipts(self._storage, name).to_pydict()
        with self._transaction():
            part = self._database.execute("INSERT INTO parts (receipts) VALUES (?)", (name,)).lastrowid
            pairs = set(zip(rows["fingerprint"], rows["ingestion"], strict=True))
            stamps = {pair: self._stamp(*pair) for pair in pairs}
            values = (
                (key_of(document_id), part, stamps[fingerprint, ingestion], _packed(content_hash), page, chunks)
                for document_id, content_hash, fingerprint, ingestion, page, chunks in zip(*rows.values(), strict=True)
            )
            self._database.executemany("INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?, ?, ?)", sorted(values))
        self._synced |= {name}

    def _stamp(self, fingerprint: str, ingestion: str) -> int:
        pair = (fingerprint, ingestion)
        self._database.execute("INSERT OR IGNORE INTO stamps (fingerprint, ingestion) VALUES (?, ?)", pair)
        chosen = "SELECT id FROM stamps WHERE fingerprint = ? AND ingestion = ?"
        return int(self._database.execute(chosen, pair).fetchone()[0])

    def _look_up(self, ids: Mapping[bytes, str]) -> Mapping[str, Found]:
        marks = ",".join("?" * len(ids))
        rows = self._database.execute(
            "SELECT key, content_hash, fingerprint, ingestion, page, chunks, parts.receipts FROM receipts"  # noqa: S608 - question marks
            " JOIN stamps ON stamps.id = stamp JOIN parts ON parts.id = part"
            f" WHERE key IN ({marks})",
            tuple(ids),
        )
        return {
            ids[key]: Found(Receipt(ids[key], _unpacked(content_hash), fingerprint, ingestion, page, chunks), receipts)
            for key, content_hash, fingerprint, ingestion, page, chunks, receipts in rows
        }

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


class Unseen:
    """Which documents of a dataset were not seen."""

    def __init__(self, index: ReceiptIndex, table: str, progress: Callable[[], None]) -> None:
        self._index = index
        self._table = table
        self._progress = progress

    def of(self, catalog: Catalog, part: Part, ingestion: str) -> set[bytes]:
        """Keys (`key_of`) of a part's documents that were not seen and come from no later ingestion than this.

        Raises like `ReceiptIndex.find`.
        """
        return self._index.unseen_of(catalog, part, self._table, ingestion, self._progress)


_indexes: "weakref.WeakKeyDictionary[Storage, dict[str, ReceiptIndex]]" = weakref.WeakKeyDictionary()
_indexes_lock = threading.Lock()


def index_of(storage: Storage, folder: str) -> ReceiptIndex:
    """The index of a dataset in this process: made at the first call, later the same one while it is in use."""
    with _indexes_lock:
        known = _indexes.setdefault(storage, {})
        index = known.pop(folder, None) or ReceiptIndex(storage)
        known[folder] = index  # those used last are at the end
        while len(known) > _MAX_INDEXES:
            del known[next(iter(known))]  # not closed: somebody may be using it
        return index


def key_of(document_id: str) -> bytes:
    """Of a document, 16 bytes: of two ids the same once in 10^26 datasets of a million documents."""
    return hashlib.blake2b(document_id.encode(), digest_size=_KEY_BYTES).digest()


def _packed(content_hash: str) -> bytes | str:
    try:
        short = bytes.fromhex(content_hash)
    except ValueError:
        return content_hash
    return short if short.hex() == content_hash else content_hash


def _unpacked(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.hex()
