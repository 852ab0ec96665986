"""Loads into a dataset's file. Each is one transaction of its only writer."""

import os
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import orjson

from tasks.datasets.loads import DocumentLoad, Finished, LoadOutcome, Receipt, Stamp, UnreadPart, Verdict
from tasks.datasets.sqlite.dataset_file import DatasetFile, told
from tasks.datasets.sqlite.schema import POSITION_BITS, open_file
from tasks.datasets.store import dataset_gone, require_same
from tasks.datasets.who_wins import Floors, SilentRoots, Unread, decide, is_deleted, silent_before
from tasks.errors import Invalid
from tasks.pieces import pieces

_AT_ONCE = 256
_COMMIT_S = 10.0
"""That a commit waits for readers. No other one can begin meanwhile, so one that stands still must not hold it long."""
_LOADS_SPILL = False
"""Pages beyond the cache would be written before the commit, and keep readers out while documents are fetched."""
_RANGE_CHUNKS = 8192
"""A part of the export."""
_REMEMBERED = 1000
"""Versions whose deletions a search can still follow; an older one reads everything anew."""
_NOBODY = 0
_PLACE = "coalesce(place, found)"
_MARKS = ",".join("?" * 16)
"""One for each column of a document."""


@dataclass(slots=True)
class Head:
    """The row of `dataset` (schema.py)."""

    id: str
    created_ms: int
    dimension: int
    vectors: str
    version: int
    forgotten: int
    next_number: int
    synced: int
    documents: int
    chunks: int

    @classmethod
    def read(cls, db: sqlite3.Connection) -> Self:
        """As it is in this transaction."""
        return cls(*db.execute("SELECT * FROM dataset").fetchone())

    def write(self, db: sqlite3.Connection) -> None:
        """For the end of a transaction."""
        columns = ", ".join(f"{field.name} = ?" for field in fields(self))
        db.execute(f"UPDATE dataset SET {columns}", astuple(self))


class _Row(NamedTuple):
    """The row of a document. `number`: 0 before it is stored."""

    number: int
    receipt: Receipt


class _Ingestions:
    """Those that have left something in the file, by number. The table only grows: each is read once."""

    def __init__(self) -> None:
        self._ids, self._fingerprints, self._numbers = {_NOBODY: ""}, {_NOBODY: ""}, {"": _NOBODY}

    def read(self, db: sqlite3.Connection) -> None:
        """Those that are new; at the beginning of each transaction."""
        last = max(self._ids)
        for number, name, fingerprint in db.execute(
            "SELECT number, id, fingerprint FROM ingestions WHERE number > ?", (last,)
        ):
            self._ids[number], self._fingerprints[number], self._numbers[name] = name, fingerprint, number

    def number(self, name: str) -> int:
        """Of an ingestion that has left something before."""
        return self._numbers[name]

    def add(self, db: sqlite3.Connection, by: Stamp) -> None:
        """Makes sure that this one has a number; to be forgotten (`read` finds it) if the transaction is."""
        if by.ingestion not in self._numbers:
            of = (by.ingestion, by.order, by.fingerprint, by.model, by.model_revision)
            db.execute("INSERT INTO ingestions VALUES (NULL, ?, ?, ?, ?, ?, NULL)", of)
            self.read(db)

    def rows(self, db: sqlite3.Connection, document_ids: Iterable[str]) -> dict[str, _Row]:
        """Of the documents that have one, by id."""
        found: dict[str, _Row] = {}
        for some in pieces(sorted(document_ids), _AT_ONCE):
            marks = ",".join("?" * len(some))
            for number, *of in db.execute(
                "SELECT number, doc_id, content_hash, loaded_by, chunks, decided, decided_by, listed, listed_by,"
                f" {_PLACE}, found, origin, how, warnings FROM documents WHERE doc_id IN ({marks})",
                some,
            ):
                of[2], of[5], of[7], of[11] = (
                    self._fingerprints[of[2]],
                    self._ids[of[5]],
                    self._ids[of[7]],
                    Verdict(of[11]),
                )
                found[of[0]] = _Row(number, Receipt(*of))
        return found


class SqliteStore:
    """A dataset in a file. See `Store`. For one thread at a time; several may have one each."""

    def __init__(self, file: DatasetFile) -> None:
        self._file = file
        self._path: Path | None = None
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        self._ingestions = _Ingestions()

    def prepare(self, by: Stamp, progress: Callable[[], None]) -> str:
        """See `Store.prepare`."""
        with told(self._file.name):
            path = self._file.path()
            if path is None:
                with self._file.locked(progress):
                    path = self._made(by)
            progress()
            head = Head.read(self._opened(path))
            _require_like(head, by)
            return head.id

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """See `Store.known`."""
        with told(self._file.name):
            path = self._file.path()
            if path is None:
                return {}
            db = self._opened(path)
            with transaction(db, "BEGIN"):
                self._ingestions.read(db)
                return {name: row.receipt for name, row in self._ingestions.rows(db, document_ids).items()}

    def load(
        self, documents: Iterable[DocumentLoad | UnreadPart], by: Stamp, progress: Callable[[], None]
    ) -> Sequence[LoadOutcome]:
        """See `Store.load`."""
        with self._changing(by, progress, spills=_LOADS_SPILL) as change:
            _require_like(change.head, by)
            outcomes: list[LoadOutcome] = []
            for some in pieces(documents, _AT_ONCE):
                progress()
                outcomes += change.load(some)
            return outcomes

    def finish(self, by: Stamp, roots: Sequence[str], progress: Callable[[], None]) -> Finished:
        """See `Store.finish`."""
        with self._changing(by, progress, spills=True) as change:
            return change.finish(roots, progress)

    def close(self) -> None:
        """See `Store.close`."""
        if self._db is not None and self._pid == os.getpid():
            self._db.close()
        self._db = None

    def _made(self, by: Stamp) -> Path:
        """The file; made, if this ingestion has not seen one that is gone."""
        if by.dataset_id and self._file.path() is None:
            raise dataset_gone()
        return self._file.made()

    def _opened(self, path: Path) -> sqlite3.Connection:
        if self._db is not None and self._pid != os.getpid():
            _left_to_parents.append(self._db)  # to close it here would give up the parent's locks
            self._db = None
        if self._path != path:  # the dataset was deleted, and made again
            self.close()
        if self._db is None:
            self._path, self._db, self._pid = path, open_file(path, _COMMIT_S), os.getpid()
            self._ingestions = _Ingestions()
        return self._db

    @contextmanager
    def _changing(self, by: Stamp, progress: Callable[[], None], *, spills: bool) -> Iterator["_Change"]:
        with told(self._file.name), self._file.locked(progress):
            db = self._opened(self._made(by))
            db.execute(f"PRAGMA cache_spill = {int(spills)}")
            try:
                with transaction(db, "BEGIN IMMEDIATE"):
                    self._ingestions.read(db)
                    change = _Change(db, self._ingestions, by)
                    require_same(change.head.id, by)
                    yield change
                    change.end()
            except BaseException:
                self._ingestions = _Ingestions()  # it may have a number that was rolled back
                raise


_left_to_parents: list[sqlite3.Connection] = []


@contextmanager
def transaction(db: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Commits at the end, or undoes all. After some errors SQLite has undone it by itself."""
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


class _Change:
    """One transaction of one ingestion."""

    def __init__(self, db: sqlite3.Connection, ingestions: _Ingestions, by: Stamp) -> None:
        self._db, self._ingestions, self._by = db, ingestions, by
        ingestions.add(db, by)
        self.head = Head.read(db)
        self._version = self.head.version + 1
        self._unread = {row[0]: Unread(*row) for row in db.execute("SELECT * FROM unread")}
        self._floors = Floors(self.head.synced, self._unread.values())
        self._ranges = [list(row) for row in db.execute("SELECT first, chunks, changed FROM ranges ORDER BY first")]
        self._changed = False

    def load(self, some: Sequence[DocumentLoad | UnreadPart]) -> list[LoadOutcome]:
        """Judges documents and carries it out. Raises `StaleError`."""
        rows = self._ingestions.rows(self._db, {line.id for line in some if isinstance(line, DocumentLoad)})
        loaded: dict[str, DocumentLoad] = {}
        touched: dict[str, _Row] = {}
        doomed: list[_Row] = []
        outcomes = []
        for line in some:
            if isinstance(line, UnreadPart):
                outcomes.append(self._part(line))
                continue
            row = rows.get(line.id)
            receipt, floor = row and row.receipt, 0 if row else self._floors.of(line.place)
            brings, after, outcome = decide(line, receipt, self._by, floor)
            outcomes.append(outcome)
            if after is None or after is receipt:
                continue
            rows[line.id] = _Row(row.number if row else 0, after)
            if brings:
                loaded[line.id] = line
                touched.pop(line.id, None)
                doomed += [row] if row and receipt and receipt.content_hash else []
            else:
                touched[line.id] = rows[line.id]
        self._remove(doomed)
        self._add(list(loaded.values()), [rows[name].receipt for name in loaded])
        self._touch(touched.values())
        return outcomes

    def finish(self, roots: Sequence[str], progress: Callable[[], None]) -> Finished:
        """Deletes what a `sync` deletes. A repetition deletes nothing."""
        me = (self._by.ingestion,)
        (before,) = self._db.execute("SELECT deleted FROM ingestions WHERE id = ?", me).fetchone()
        if before is not None:
            return Finished(before, silent_before(roots, self._unread.values(), self._by.order))
        empty = self._silent(roots, progress)
        for root in empty:
            self._part(UnreadPart(root))
        deleted = last = 0
        while some := self._db.execute(
            "SELECT number, doc_id FROM documents WHERE number > ? AND listed < ? ORDER BY number LIMIT ?",
            (last, self._by.order, _AT_ONCE),
        ).fetchall():
            progress()
            last = some[-1][0]
            rows = self._ingestions.rows(self._db, (name for _, name in some)).values()
            doomed = [row for row in rows if is_deleted(row.receipt, self._by.order, self._unread.values())]
            content = [row for row in doomed if row.receipt.content_hash]
            self._remove(content)
            self._db.executemany("DELETE FROM documents WHERE number = ?", [(row.number,) for row in doomed])
            deleted += len(content)
        self.head.synced = max(self.head.synced, self._by.order)
        self._db.execute("UPDATE ingestions SET deleted = ? WHERE id = ?", (deleted, *me))
        return Finished(deleted, empty)

    def end(self) -> None:
        """Writes what has come of it all."""
        if self._changed:
            self._write_ranges()
            self.head.version = self._version
            self.head.forgotten = max(self.head.forgotten, self._version - _REMEMBERED)
            self._db.execute("DELETE FROM gone WHERE version <= ?", (self.head.forgotten,))
            if not self.head.chunks:
                self.head.dimension, self.head.vectors = 0, ""
        self.head.write(self._db)

    def _part(self, line: UnreadPart) -> LoadOutcome:
        there = self._unread.get(line.part)
        if there is None or there.listed < self._by.order:
            unread = Unread(line.part, self._by.order, self._floors.of(line.part))
            self._db.execute("INSERT OR REPLACE INTO unread VALUES (?, ?, ?)", unread)
            self._unread[line.part] = unread
            self._floors = Floors(self.head.synced, self._unread.values())
        return LoadOutcome(Verdict.FAILED)

    def _silent(self, roots: Sequence[str], progress: Callable[[], None]) -> list[str]:
        """The roots that have listed nothing while content of them is known."""
        silent, me = SilentRoots(roots), self._ingestions.number(self._by.ingestion)
        for where, look in ((f"listed_by = {me}", silent.listed), ("content_hash <> ''", silent.known)):
            rows = self._db.execute(f"SELECT {_PLACE} FROM documents WHERE {where}")
            while (some := rows.fetchmany(_AT_ONCE)) and look(place for (place,) in some):
                progress()
        return silent.missed

    def _add(self, documents: Sequence[DocumentLoad], receipts: Sequence[Receipt]) -> None:
        """Documents with their chunks, whose earlier versions are removed. Their numbers are new."""
        if not documents:
            return
        first, rows, chunks, vectors = self.head.next_number, [], [], []
        for document, receipt in zip(documents, receipts, strict=True):
            wanted = (len(document.chunks), self._by.dimension)
            if document.chunks and document.vectors.shape != wanted:
                raise ValueError(f"vectors of shape {document.vectors.shape} for {wanted}")
            number, self.head.next_number = self.head.next_number, self.head.next_number + 1
            rows.append(self._stored(number, receipt, document))
            base, whole = number << POSITION_BITS, np.ascontiguousarray(document.vectors, "<f4")
            for at, chunk in enumerate(document.chunks):
                headings = orjson.dumps(chunk.headings).decode() if chunk.headings else "[]"
                place = (base | at, chunk.text, chunk.start, chunk.end, chunk.page)
                chunks.append((*place, headings, chunk.token_count, chunk.truncated))
                vectors.append((base | at, whole[at].data))
        self._db.executemany(f"INSERT OR REPLACE INTO documents VALUES ({_MARKS})", rows)
        self._db.executemany("INSERT INTO chunks VALUES (?,?,?,?,?,?,?,?)", chunks)
        self._db.executemany("INSERT INTO vectors VALUES (?,?)", vectors)
        new = (first << POSITION_BITS,)
        self._db.execute("INSERT INTO words (rowid, text) SELECT number, text FROM chunks WHERE number >= ?", new)
        if not self._ranges or self._ranges[-1][1] >= _RANGE_CHUNKS:
            self._ranges.append([first, 0, 0])
        self._ranges[-1][1:] = self._ranges[-1][1] + len(chunks), self._version
        self.head.documents += len(documents)
        self.head.chunks += len(chunks)
        if chunks and not self.head.dimension:
            self.head.dimension, self.head.vectors = self._by.dimension, self._by.vectors
        self._changed = True

    def _stored(self, number: int, receipt: Receipt, document: DocumentLoad | None) -> tuple[int | str | None, ...]:
        metadata = orjson.dumps(dict(document.metadata)).decode() if document and document.metadata else "{}"
        loaded_by = self._ingestions.number(self._by.ingestion) if receipt.content_hash else _NOBODY
        r, number_of = receipt, self._ingestions.number
        who = (r.decided, number_of(r.decided_by), r.listed, number_of(r.listed_by))
        place = None if r.place == r.found else r.place
        return (
            *(number, r.document_id, r.content_hash, loaded_by, r.chunks),
            *(*who, place, None, r.found, r.origin, r.how, metadata, r.warnings),
        )

    def _touch(self, rows: Iterable[_Row]) -> None:
        """Receipts of documents whose content stays as it is, or that have none."""
        changed, new = [], []
        for number, r in rows:
            if number:
                who = (r.decided, self._ingestions.number(r.decided_by), r.listed, self._ingestions.number(r.listed_by))
                changed.append((*who, None if r.place == r.found else r.place, r.found, r.how, number))
            else:
                new.append(self._stored(self.head.next_number, r, None))
                self.head.next_number += 1
        self._db.executemany(
            "UPDATE documents SET decided = ?, decided_by = ?, listed = ?, listed_by = ?, place = ?,"
            " source_uri = coalesce(source_uri, found), found = ?, how = ? WHERE number = ?",
            changed,
        )
        self._db.executemany(f"INSERT INTO documents VALUES ({_MARKS})", new)

    def _remove(self, rows: Sequence[_Row]) -> None:
        """Deletes the content of documents. Their rows are left to the caller."""
        if not rows:
            return
        spans = [
            (row.number << POSITION_BITS, (row.number + 1 << POSITION_BITS) - 1) for row in rows if row.receipt.chunks
        ]
        self._db.executemany(
            "INSERT INTO words (words, rowid, text) SELECT 'delete', number, text FROM chunks"
            " WHERE number BETWEEN ? AND ?",
            spans,
        )
        self._db.executemany("DELETE FROM chunks WHERE number BETWEEN ? AND ?", spans)
        self._db.executemany("DELETE FROM vectors WHERE number BETWEEN ? AND ?", spans)
        self._db.executemany("INSERT INTO gone VALUES (?, ?)", [(self._version, row.number) for row in rows])
        firsts = [each[0] for each in self._ranges]
        for row in rows:
            of = self._ranges[bisect_right(firsts, row.number) - 1]
            of[1:] = of[1] - row.receipt.chunks, self._version
            self.head.chunks -= row.receipt.chunks
        self.head.documents -= len(rows)
        self._changed = True

    def _write_ranges(self) -> None:
        merged: list[list[int]] = []
        for each in self._ranges:  # two neighbours with few chunks left become one
            if merged and merged[-1][1] + each[1] <= _RANGE_CHUNKS and each is not self._ranges[-1]:
                changed = max(merged[-1][2], each[2], self._version if each[1] else 0)
                merged[-1][1:] = merged[-1][1] + each[1], changed
            else:
                merged.append(each)
        kept = {each[0] for each in merged}
        self._db.executemany("DELETE FROM ranges WHERE first = ?", [(e[0],) for e in self._ranges if e[0] not in kept])
        self._db.executemany(
            "INSERT INTO ranges VALUES (?, ?, ?) ON CONFLICT (first) DO UPDATE SET chunks = excluded.chunks,"
            " changed = excluded.changed WHERE changed <> excluded.changed",
            merged,
        )


def _require_like(head: Head, by: Stamp) -> None:
    if head.dimension not in {0, by.dimension}:
        raise Invalid(
            "sink_dimension_mismatch",
            f"The dataset holds vectors of {head.dimension} dimensions, and this model makes {by.dimension}. Name "
            "another dataset, or the model with which it was made.",
            param="sink.dataset",
        )
    if head.vectors not in {"", by.vectors}:
        raise Invalid(
            "sink_model_mismatch",
            f"The dataset holds vectors of {head.vectors}, and these would be of {by.vectors}: no search can compare "
            "them. Name another dataset, or delete this one and load all of it again.",
            param="sink.dataset",
        )
