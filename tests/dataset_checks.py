"""Whether the file of a dataset is whole."""

import sqlite3


def check_whole(db: sqlite3.Connection) -> None:
    """Counters, chunks, vectors and ranges agree with the documents, and SQLite finds nothing wrong."""
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    counts = db.execute("SELECT count(*), coalesce(sum(chunks), 0) FROM documents WHERE content_hash <> ''").fetchone()
    assert db.execute("SELECT documents, chunks FROM dataset").fetchone() == counts
    assert db.execute("SELECT coalesce(sum(chunks), 0) FROM ranges").fetchone() == counts[1:]
    chunks = dict(db.execute("SELECT number, chunks FROM documents WHERE chunks > 0"))
    for table in ("chunks", "vectors"):
        counted = db.execute(f"SELECT number >> 24, count(*) FROM {table} GROUP BY 1")  # noqa: S608 - a constant
        assert dict(counted) == chunks
    db.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")  # against the texts
    db.rollback()
    (first,) = db.execute("SELECT min(first) FROM ranges").fetchone()
    assert all(number >= first for number in chunks)
