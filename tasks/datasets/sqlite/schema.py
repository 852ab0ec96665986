"""The tables of a dataset's file, and how a connection to one is opened.

Made for changes in place: a document that is replaced gets a new number behind all others, so what is new since a
search is one range, and a place in a list is one number that stays right.
"""

import secrets
import sqlite3
import time
from pathlib import Path

FORMAT = 2
"""`PRAGMA user_version`. It goes up with each change of the tables."""
PAGE_BYTES = 16_384
"""Vectors of 384 and 768 numbers fill it to 94 %; with 4,096 bytes those of 1,024 numbers would be cut in two."""
POSITION_BITS = 24
"""Of a chunk's number: that of its document, and behind it its index."""
_CACHE_KIB = 32 * 1024
READ_S = 60.0
"""That a reader waits for a commit."""

_TABLES = """
CREATE TABLE dataset (                  -- one row
    id TEXT NOT NULL, created_ms INTEGER NOT NULL,
    dimension INTEGER NOT NULL,         -- of all vectors; 0 before there are any
    vectors TEXT NOT NULL,              -- what makes them comparable, as in Stamp; '' before there are any
    version INTEGER NOT NULL,           -- each change of the content adds one
    forgotten INTEGER NOT NULL,         -- deletions up to this version are not in `gone` any more
    next_number INTEGER NOT NULL,       -- of a document; never used twice
    synced INTEGER NOT NULL,            -- order of the last `sync`
    documents INTEGER NOT NULL,         -- with content
    chunks INTEGER NOT NULL);
CREATE TABLE ingestions (               -- that have left something
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, load_order INTEGER NOT NULL, fingerprint TEXT NOT NULL,
    model TEXT NOT NULL, model_revision TEXT NOT NULL,
    deleted INTEGER);                   -- by its end, if it was a `sync`
CREATE TABLE documents (                -- the row is the receipt (who_wins.py)
    number INTEGER PRIMARY KEY, doc_id TEXT NOT NULL UNIQUE, content_hash TEXT NOT NULL,
    loaded_by INTEGER NOT NULL,         -- number in `ingestions`, and likewise below; 0: there is no content
    chunks INTEGER NOT NULL, decided INTEGER NOT NULL, decided_by INTEGER NOT NULL, listed INTEGER NOT NULL,
    listed_by INTEGER NOT NULL,
    place TEXT,                         -- NULL: `found`
    source_uri TEXT,                    -- where the content was read; NULL: `found`
    found TEXT NOT NULL, origin TEXT NOT NULL, how TEXT NOT NULL, metadata TEXT NOT NULL,
    warnings TEXT NOT NULL);            -- of its content, JSON
CREATE TABLE chunks (                   -- number = number of the document << 24 | index
    number INTEGER PRIMARY KEY, text TEXT NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL, page INTEGER,
    headings TEXT NOT NULL, token_count INTEGER NOT NULL, truncated INTEGER NOT NULL);
CREATE TABLE vectors (number INTEGER PRIMARY KEY, embedding BLOB NOT NULL);  -- float32, little endian
CREATE VIRTUAL TABLE words USING fts5(text, content='chunks', content_rowid='number',
    tokenize='unicode61 remove_diacritics 2');
CREATE TABLE gone (version INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (version, number)) WITHOUT ROWID;
CREATE TABLE ranges (                   -- parts of the export, by the first document
    first INTEGER PRIMARY KEY, chunks INTEGER NOT NULL, changed INTEGER NOT NULL);
CREATE TABLE unread (part TEXT PRIMARY KEY, listed INTEGER NOT NULL, floor INTEGER NOT NULL) WITHOUT ROWID;
"""


class OtherFormat(sqlite3.DatabaseError):
    """The file was made by another version of embedq."""


def make_file(path: Path) -> str:
    """Makes an empty dataset in a new file, flushed; returns its id, which no other has. Raises `sqlite3.Error`."""
    dataset_id = secrets.token_hex(16)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = TRUNCATE")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA user_version = {FORMAT}")
        db.executescript(f"BEGIN;{_TABLES}")
        created_ms = time.time_ns() // 1_000_000
        db.execute("INSERT INTO dataset VALUES (?, ?, 0, '', 0, 0, 1, 0, 0, 0)", (dataset_id, created_ms))
        db.execute("COMMIT")
    finally:
        db.close()
    return dataset_id


def open_file(path: Path, patience_s: float = READ_S) -> sqlite3.Connection:
    """A connection to a file that exists: for one thread at a time, in the process that has opened it.

    Opened for writing also by readers: after a crash somebody has to roll back what the journal has.
    The rollback journal and not the write-ahead log: SQLite 3.7.0 to 3.51.2 may damage a file in that mode ("WAL-reset
    bug"), and it needs a shared memory that folders without rights and containers do not have.

    Args:
        path: of the file.
        patience_s: how long it waits for others who read or write.

    Raises:
        sqlite3.Error: it cannot be opened, or is another format.
    """
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=patience_s,
                         check_same_thread=False)  # fmt: skip
    try:
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found != FORMAT:
            raise OtherFormat(f"format {found}, and this version of embedq knows {FORMAT}")  # noqa: TRY301
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute("PRAGMA journal_mode = TRUNCATE")
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db
