"""What is stored of a page: its manifest, what was parsed, and its chunks as rows."""

import secrets

import pytest

from tasks.chunk import Chunk
from tasks.documents.document_error import DocumentError
from tasks.documents.ingestions.manifest import (
    ChunkRows,
    ParsedDocument,
    chunk_of,
    in_order_of_parsing,
    read_manifest,
    read_parsed,
    write_manifest,
)
from tasks.documents.sources.source import DocumentRef, ListedFault
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_listed
from tasks.storage.row_file import RowReference, read_rows, writing_rows
from tasks.storage.storage import Storage

ERROR = DocumentError("malformed_record", "The line is not JSON.", "listing")


@pytest.fixture
def storage() -> Storage:
    return Storage.open(f"memory://{secrets.token_hex(4)}")


def test_a_manifest_gives_back_its_entries(storage: Storage) -> None:
    file, other = {"at": {"path": "a"}, "in": "a.jsonl", "version": "1"}, {"at": {"path": "b"}}
    entries: list[DocumentRef | ListedFault] = [
        DocumentRef("a#1", "file:a#1", "", 10, file, [0, 10], {"tag": ["x"]}, "a"),
        ListedFault("a#2", "file:a#2", ERROR),
        DocumentRef("a#3", "file:a#3", "", 10, file, [20, 10], {}),
        DocumentRef("b", "file:b", "b.txt", None, other, None, {"é": {"n": None}}),
        DocumentRef("c", "file:c", "c.txt", 1, dict(other), None, {}),
    ]
    assert write_manifest(storage, "page", iter(entries)) == len(entries)
    found = list(read_manifest(storage, "page"))
    assert found == entries
    records = [entry for entry in found if isinstance(entry, DocumentRef)][:2]
    assert records[0].place is records[1].place  # once for a file, and not once for a record
    assert list(read_listed(storage, "page")) == [(entry.id, entry.uri) for entry in entries]
    assert [entry.id for entry in in_order_of_parsing(found)] == ["a#1", "a#3", "b", "c", "a#2"]


def test_a_reference_by_itself_says_all(storage: Storage) -> None:
    ref = DocumentRef("a#1", "file:a#1", "", 10, {"in": "a"}, [0, 10], {"tag": 1}, "a")
    assert DocumentRef.from_json(ref.to_json()) == ref


def test_what_was_parsed_is_given_back(storage: Storage) -> None:
    documents = [
        ParsedDocument(
            "a", "file:a", "chunked", "0" * 64, 3, 2, 40, {"tag": 1}, "file", None, "emptied", replaces=True
        ),
        ParsedDocument("b", "file:b", "unchanged", "1" * 64),
        ParsedDocument.failed(ListedFault("c", "file:c", ERROR), ERROR),
    ]
    storage.write("parsed", b"".join(document.to_line() for document in documents))
    assert list(read_parsed(storage, "parsed")) == documents


def test_an_outcome_is_stored_without_what_is_absent() -> None:
    loaded = DocumentOutcome("a", "file:a", DocumentStatus.LOADED, content_hash="0", chunks=1, tokens=2)
    assert loaded.to_line() == (
        b'{"id":"a","uri":"file:a","status":"loaded","content_hash":"0","chunks":1,"tokens":2}\n'
    )
    failed = DocumentOutcome("a", "file:a", DocumentStatus.FAILED, "parsing", "code", "why", "", 1, 2, {"id": "a"})
    for outcome in (loaded, failed, loaded._replace(code="emptied"), loaded._replace(chunks=0)):
        assert DocumentOutcome.from_line(outcome.to_line()) == outcome


def test_rows_are_found_by_their_index_however_long_they_are(storage: Storage) -> None:
    chunks = [Chunk(n, f"{n} " * (1 if n % 7 else 30_000), n, n + 1, None, ("One", "é"), n) for n in range(40)]
    with writing_rows(storage, "source", "index") as written:
        rows = ChunkRows(written, {"dimensions": 2}, 10**9)
        for number, chunk in enumerate(chunks):
            assert rows.rows == number
            rows.add(chunk)
    assert rows.pieces == [(0, 40, 781)]
    lines = read_rows(storage, RowReference("source", "index", 0), 0, len(chunks))
    assert [chunk_of(line) for line in lines] == chunks
