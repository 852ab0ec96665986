"""What a dataset's file holds: its head, pages of documents and chunks. Reads are short, as a load waits for them."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tasks.datasets.contents import (
    ChunkPage,
    DatasetGone,
    DatasetHead,
    DocumentPage,
    ExportedPart,
    ExportPart,
    ExportRow,
    StoredChunk,
    StoredDocument,
)
from tasks.datasets.sqlite.dataset_file import DatasetFile, told
from tasks.datasets.sqlite.load import Head, transaction
from tasks.datasets.sqlite.schema import POSITION_BITS, open_file

_LAST = (1 << POSITION_BITS) - 1
CHUNK = (
    f'SELECT c.number, d.doc_id, c.number & {_LAST}, c.text, c.start, c."end", c.page, c.headings, d.metadata'
    f" FROM chunks c JOIN documents d ON d.number = c.number >> {POSITION_BITS}"
)
_EXPORTED = (
    f'SELECT d.doc_id, i.fingerprint, c.number & {_LAST}, c.text, c.start, c."end", c.page, c.headings, c.token_count,'
    " c.truncated, coalesce(d.source_uri, d.found), d.content_hash, d.metadata, v.embedding, i.model, i.model_revision"
    f" FROM chunks c JOIN vectors v USING (number) JOIN documents d ON d.number = c.number >> {POSITION_BITS}"
    " JOIN ingestions i ON i.number = d.loaded_by WHERE c.number >= ? AND c.number < ? ORDER BY c.number"
)


class SqliteReader:
    """Reads one dataset. For one thread at a time."""

    def __init__(self, file: DatasetFile) -> None:
        self._file = file
        self._path: Path | None = None
        self._db: sqlite3.Connection | None = None

    @contextmanager
    def version(self) -> Iterator[tuple[sqlite3.Connection, Head]]:
        """One version of the dataset for as long as the block lasts. Meanwhile no load can commit.

        Raises:
            DatasetGone: there is none.
            SinkUnavailable, Invalid: it cannot be read now, or never.
        """
        with told(self._file.name):
            if self._db is not None and not (self._path and self._path.exists()):
                self.close()
            if self._db is None:
                self._path = self._file.path()
                if self._path is None:
                    raise DatasetGone
                self._db = open_file(self._path)
                self._db.execute("PRAGMA query_only = ON")
            with transaction(self._db, "BEGIN"):
                yield self._db, Head.read(self._db)

    def close(self) -> None:
        """Closes the connection."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def head(self) -> DatasetHead:
        """What is to be said of the dataset as a whole."""
        with self.version() as (db, head):
            model = db.execute(
                "SELECT i.model FROM documents d JOIN ingestions i ON i.number = d.loaded_by WHERE d.chunks > 0 LIMIT 1"
            ).fetchone()
            stat = Path(db.execute("PRAGMA database_list").fetchone()[2]).stat()
        return DatasetHead(
            id=head.id,
            name=self._file.name,
            version=head.version,
            created_ms=head.created_ms,
            written_ms=stat.st_mtime_ns // 1_000_000,
            dimension=head.dimension,
            vectors=head.vectors,
            model=model[0] if model else "",
            documents=head.documents,
            chunks=head.chunks,
            size_bytes=stat.st_size,
        )

    def documents(self, after: int, limit: int) -> DocumentPage:
        """Those that have chunks, behind a number, in the order in which they were loaded."""
        with self.version() as (db, _):
            rows = db.execute(
                "SELECT number, doc_id, chunks, coalesce(source_uri, found), metadata,"
                f" (SELECT headings FROM chunks c WHERE c.number = d.number << {POSITION_BITS}), warnings"
                " FROM documents d WHERE number > ? AND chunks > 0 ORDER BY number LIMIT ?",
                (after, limit + 1),
            ).fetchall()
        return DocumentPage([StoredDocument(*row) for row in rows[:limit]], more=len(rows) > limit)

    def chunks(self, after: int, limit: int, document_id: str | None = None) -> ChunkPage:
        """Those behind the number of one: of the dataset, or of one document."""
        with self.version() as (db, _):
            where, values = "c.number > ?", [after]
            if document_id is not None:
                row = db.execute("SELECT number FROM documents WHERE doc_id = ?", (document_id,)).fetchone()
                first = row[0] << POSITION_BITS if row else -1
                where, values = "c.number BETWEEN ? AND ?", [max(first, after + 1), first | _LAST if row else -2]
            rows = db.execute(f"{CHUNK} WHERE {where} ORDER BY c.number LIMIT ?", (*values, limit + 1)).fetchall()
        return ChunkPage([StoredChunk(*row) for row in rows[:limit]], more=len(rows) > limit)

    def export_parts(self) -> Sequence[ExportPart]:
        """The parts of the dataset as it is now, in order."""
        with self.version() as (db, _):
            rows = db.execute("SELECT first, changed, chunks FROM ranges WHERE chunks > 0 ORDER BY first").fetchall()
        return [ExportPart(*row) for row in rows]

    def export_rows(self, part: ExportPart) -> ExportedPart | None:
        """See `Contents.export_rows`."""
        with self.version() as (db, head):
            at = (part.first, part.changed)
            if not db.execute("SELECT 1 FROM ranges WHERE first = ? AND changed = ? AND chunks > 0", at).fetchone():
                return None
            (after,) = db.execute("SELECT min(first) FROM ranges WHERE first > ?", at[:1]).fetchone()
            last = head.next_number if after is None else after
            rows = db.execute(_EXPORTED, (part.first << POSITION_BITS, last << POSITION_BITS))
            return ExportedPart(head.id, head.dimension, [ExportRow(*row) for row in rows])


def chunks_by_number(db: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, StoredChunk]:
    """Those that are there."""
    rows = db.execute(f"{CHUNK} WHERE c.number IN ({','.join('?' * len(numbers))})", numbers)
    return {row[0]: StoredChunk(*row) for row in rows}
