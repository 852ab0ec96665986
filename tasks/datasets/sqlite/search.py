"""Exact search in a dataset's file.

Vectors stay in memory and follow the file. Those of a dataset that is larger are read at each search, block by block.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from tasks.datasets.contents import DOCUMENT_ID, Filter, Found
from tasks.datasets.hybrid_search import searched_words
from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.sqlite.load import Head
from tasks.datasets.sqlite.ranking import Ranking, row_lengths
from tasks.datasets.sqlite.read import SqliteReader, chunks_by_number
from tasks.datasets.sqlite.schema import POSITION_BITS
from tasks.errors import NotReady

_READ_ROWS = 16_384
"""In one transaction, as a load waits for its end: 25 MB of vectors with 384 numbers."""
_BLOCK_ROWS = 65_536
_FETCHED = 4096
_FILTERS = 16
"""Of which the documents that pass are remembered."""
_ROW_BYTES = 13
"""Of a vector in memory, beside its numbers: the chunk's number, its length, whether it is there still."""

Numbers: TypeAlias = npt.NDArray[np.int64]


class _Hit(NamedTuple):
    chunk: int
    score: float


class VectorBlock(NamedTuple):
    """Vectors of consecutive chunks. Nothing in it changes: what is gone makes another `there`."""

    numbers: Numbers
    vectors: npt.NDArray[np.float32]
    lengths: npt.NDArray[np.float32]
    there: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The vectors of a version, as far as they were read. `after`: number of the last chunk that was looked at."""

    dataset_id: str
    version: int = -1
    after: int = -1
    blocks: tuple[VectorBlock, ...] = ()

    @property
    def size_bytes(self) -> int:
        """In memory."""
        return sum(each.nbytes for block in self.blocks for each in block)

    def followed(self, db: sqlite3.Connection, head: Head) -> "Snapshot":
        """The same at the version of this transaction, with at most `_READ_ROWS` of what is new."""
        last = (head.next_number << POSITION_BITS) - 1
        if self.version == head.version and self.after == last:
            return self
        of = self if head.forgotten <= self.version else Snapshot(self.dataset_id)
        gone = db.execute("SELECT number FROM gone WHERE version > ?", (of.version,)).fetchall() if of.blocks else ()
        blocks = _without(of.blocks, np.array([number for (number,) in gone], np.int64))
        new = _read(db, of.after, head.dimension)
        after = last if len(new.numbers) < _READ_ROWS else int(new.numbers[-1])
        return Snapshot(self.dataset_id, head.version, after, _tidy((*blocks, new)))

    def is_all(self, head: Head) -> bool:
        """Whether nothing of that version is missing."""
        return self.version == head.version and self.after == (head.next_number << POSITION_BITS) - 1


class VectorMemory:
    """Vectors of the datasets that were searched last. For several threads.

    Args:
        max_bytes: of all of them. A dataset that does not fit is never held.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Snapshot] = OrderedDict()
        self._following: dict[str, threading.Lock] = {}
        self.passing: OrderedDict[tuple[str, int, bytes], Numbers] = OrderedDict()

    def followed(self, db: sqlite3.Connection, head: Head, known: Snapshot | None) -> Snapshot | None:
        """The vectors of this version, as far as they were read (`Snapshot.is_all`); None: it does not fit.

        `known`: what this search has read before. Two datasets that do not fit together would push each other out.
        """
        if head.chunks * (4 * head.dimension + _ROW_BYTES) > self._max_bytes:
            self.forget({head.id})
            return None
        with self._lock:
            following = self._following.setdefault(head.id, threading.Lock())
        with following:  # of two threads one reads
            with self._lock:
                mine = known if known and known.dataset_id == head.id else Snapshot(head.id)
                before = self._held.get(head.id) or mine
            snapshot = before.followed(db, head)
            with self._lock:
                self._held[head.id] = snapshot
                self._held.move_to_end(head.id)
                while len(self._held) > 1 and sum(each.size_bytes for each in self._held.values()) > self._max_bytes:
                    dropped, _ = self._held.popitem(last=False)
                    self._following.pop(dropped, None)
        return snapshot

    def numbers(self, db: sqlite3.Connection, head: Head, fields: Filter) -> Numbers:
        """Of the documents whose metadata has these fields, in order."""
        key = (head.id, head.version, orjson.dumps(dict(fields), option=orjson.OPT_SORT_KEYS))
        with self._lock:
            known = self.passing.get(key)
        if known is None:
            where, values = filter_sql(fields)
            rows = db.execute(f"SELECT d.number FROM documents d WHERE {where} ORDER BY d.number", values)
            known = np.fromiter((number for (number,) in rows), np.int64)
            with self._lock:
                self.passing[key] = known
                while len(self.passing) > _FILTERS:
                    self.passing.popitem(last=False)
        return known

    @property
    def size_bytes(self) -> int:
        """Of all that is held."""
        with self._lock:
            return sum(each.size_bytes for each in self._held.values())

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            ids = {*self._held, *(key[0] for key in self.passing)}
        self.forget(ids)

    def forget(self, dataset_ids: AbstractSet[str]) -> None:
        """Drops what is held of these datasets."""
        with self._lock:
            for each in dataset_ids:
                self._held.pop(each, None)
                self._following.pop(each, None)
            for key in [key for key in self.passing if key[0] in dataset_ids]:
                del self.passing[key]


class SqliteContents(SqliteReader):
    """A dataset as it is listed and searched. See `Contents`. For one thread at a time; the memory is shared."""

    def __init__(self, file: DatasetFile, memory: VectorMemory) -> None:
        super().__init__(file)
        self._memory = memory

    def nearest(
        self, vector: npt.NDArray[np.floating], k: int, fields: Filter | None, stopping: Callable[[], bool]
    ) -> list[Found]:
        """See `Contents.nearest`."""
        after, scored, snapshot, seen = -1, list[_Hit](), None, ("", -1)
        while True:
            if stopping():
                raise _nobody_waits()
            with self.version() as (db, head):
                among = self._memory.numbers(db, head, fields) if fields else None
                snapshot = self._memory.followed(db, head, snapshot)
                if snapshot is not None:
                    if not snapshot.is_all(head):
                        continue  # the next piece in another transaction
                    return _found(db, _nearest(snapshot.blocks, vector, k, among))
                if seen != (head.id, head.version) and not _all_there(db, head, scored, seen):
                    after, scored = -1, []
                seen = (head.id, head.version)
                block = _read(db, after, head.dimension)
                scored = _merged(scored, _nearest((block,), vector, k, among), k)
                if len(block.numbers) < _READ_ROWS:
                    return _found(db, scored)
                after = int(block.numbers[-1])

    def words(self, text: str, k: int, fields: Filter | None, stopping: Callable[[], bool]) -> list[Found]:
        """See `Contents.words`: ranked by BM25."""
        wanted = " OR ".join(f'"{quoted}"' for quoted in searched_words(text))
        if stopping():
            raise _nobody_waits()
        if not wanted:
            return []
        where, values = filter_sql(fields or {})
        # Without a filter the index alone is read. Its ranks count downwards.
        among = f" AND EXISTS (SELECT 1 FROM documents d WHERE d.number = words.rowid >> {POSITION_BITS} AND {where})"
        with self.version() as (db, _):
            rows = db.execute(
                f"SELECT rowid, -rank FROM words WHERE words MATCH ?{among if fields else ''} ORDER BY rank LIMIT ?",
                (wanted, *values, k),
            )
            return _found(db, [_Hit(*row) for row in rows.fetchall()])


def _all_there(db: sqlite3.Connection, head: Head, hits: Sequence[_Hit], seen: tuple[str, int]) -> bool:
    """Whether hits of an earlier version are those of this one, as far as it was read: what is new comes behind."""
    if seen[0] != head.id or head.forgotten > seen[1]:
        return False
    gone = {number for (number,) in db.execute("SELECT number FROM gone WHERE version > ?", seen[1:])}
    return not any(hit.chunk >> POSITION_BITS in gone for hit in hits)


def _nobody_waits() -> NotReady:
    return NotReady("This process is stopping; send the request again.", retry_after_s=1)


def _found(db: sqlite3.Connection, hits: Sequence[_Hit]) -> list[Found]:
    chunks = chunks_by_number(db, [hit.chunk for hit in hits])
    return [Found(chunks[hit.chunk], hit.score) for hit in hits if hit.chunk in chunks]


def _merged(one: Sequence[_Hit], other: Sequence[_Hit], k: int) -> list[_Hit]:
    return sorted((*one, *other), key=lambda hit: (-hit.score, hit.chunk))[:k]


def _nearest(
    blocks: Sequence[VectorBlock], vector: npt.NDArray[np.floating], k: int, among: Numbers | None
) -> list[_Hit]:
    ranking, firsts, numbers = Ranking(vector, k), [0], list[Numbers]()
    for each in blocks:
        block = each if among is None or not len(each.numbers) else _of(among, each)
        if len(block.numbers):
            ranking.add(firsts[-1], block.vectors, block.lengths, None if block.there.all() else block.there)
        numbers.append(block.numbers)
        firsts.append(firsts[-1] + len(block.numbers))
    hits = []
    for row, score in ranking.hits:
        at = int(np.searchsorted(firsts, row, "right")) - 1
        hits.append(_Hit(int(numbers[at][row - firsts[at]]), score))
    return hits


def _of(documents: Numbers, block: VectorBlock) -> VectorBlock:
    """The chunks of these documents alone; both are in order."""
    near = slice(*(np.searchsorted(documents, block.numbers[[0, -1]] >> POSITION_BITS) + np.array([0, 1])))
    spans = (np.searchsorted(block.numbers, documents[near] + at << POSITION_BITS) for at in (0, 1))
    begun, ended = (np.bincount(each, minlength=len(block.numbers) + 1) for each in spans)
    return _joined([block], block.there & (np.cumsum(begun - ended)[:-1] > 0))


def _read(db: sqlite3.Connection, after: int, dimension: int) -> VectorBlock:
    rows = db.execute(
        "SELECT number, embedding FROM vectors WHERE number > ? ORDER BY number LIMIT ?", (after, _READ_ROWS)
    )
    numbers, vectors = [np.empty(0, np.int64)], [np.empty((0, dimension), np.float32)]
    while some := rows.fetchmany(_FETCHED):
        ids, blobs = zip(*some, strict=True)
        numbers.append(np.array(ids, np.int64))
        vectors.append(np.frombuffer(b"".join(blobs), "<f4").reshape(len(some), dimension))
    whole = np.concatenate(vectors)
    return VectorBlock(np.concatenate(numbers), whole, row_lengths(whole), np.ones(len(whole), np.bool_))


def _without(blocks: Sequence[VectorBlock], documents: Numbers) -> tuple[VectorBlock, ...]:
    if not len(documents):
        return tuple(blocks)
    return tuple(
        block._replace(there=block.there & ~np.isin(block.numbers >> POSITION_BITS, documents)) for block in blocks
    )


def _tidy(blocks: Sequence[VectorBlock]) -> tuple[VectorBlock, ...]:
    """Blocks that are half empty shrink, and small neighbours become one."""
    tidy: list[VectorBlock] = []
    for block in blocks:
        each = block if 2 * np.count_nonzero(block.there) >= len(block.there) else _joined([block], block.there)
        if tidy and len(tidy[-1].numbers) + len(each.numbers) <= _BLOCK_ROWS:
            tidy[-1] = _joined([tidy[-1], each])
        elif len(each.numbers):
            tidy.append(each)
    return tuple(tidy)


def _joined(blocks: Sequence[VectorBlock], which: npt.NDArray[np.bool_] | slice = slice(None)) -> VectorBlock:
    return VectorBlock(
        np.concatenate([block.numbers for block in blocks])[which],
        np.concatenate([block.vectors for block in blocks])[which],
        np.concatenate([block.lengths for block in blocks])[which],
        np.concatenate([block.there for block in blocks])[which],
    )


def filter_sql(fields: Filter) -> tuple[str, list[Any]]:
    """A condition on documents `d`, and its values: fields of their metadata and the value of each.

    A value has its type, as in JSON: 1 is 1.0, and not true. A list has each of its values.
    """
    terms, values = [], list[Any]()
    for name, value in fields.items():
        if name == DOCUMENT_ID:
            terms.append("d.doc_id = ?")
            values.append(value if isinstance(value, str) else None)
            continue
        kinds = (
            ("true", "false")
            if isinstance(value, bool)
            else ("text",)
            if isinstance(value, str)
            else ("integer", "real")
        )
        fits = "e.value = ? AND e.type IN ({})".format(", ".join(f"'{kind}'" for kind in kinds))
        # By the key and not by a path: names with a quotation mark have none.
        terms.append(
            "EXISTS (SELECT 1 FROM json_each(d.metadata) f WHERE f.key = ? AND CASE f.type WHEN 'object' THEN 0"
            f" WHEN 'array' THEN EXISTS (SELECT 1 FROM json_each(f.value) e WHERE {fits})"
            f" ELSE {fits.replace('e.', 'f.')} END)"
        )
        values += [name, value, value]
    return " AND ".join(terms) or "1", values
