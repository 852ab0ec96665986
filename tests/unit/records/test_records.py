"""Lines of the documents of a page, as each stage writes and reads them; and what tables the limits of a key name."""

import secrets

import pytest

from tasks.document_error import MAX_WARNED_PAGES, DocumentError, DocumentWarning
from tasks.records.api_keys import NO_LIMITS, Limits
from tasks.records.documents import Document, DocumentStatus, read_documents, write_documents
from tasks.storage.storage import CHUNK_BYTES, Storage

ERROR = DocumentError("malformed_record", "The line is not JSON.", "listing")
SCANNED = DocumentWarning("pages_without_text", "2 pages have no text: run OCR.", (2, 3))
S = DocumentStatus


@pytest.fixture
def storage() -> Storage:
    return Storage.open(f"memory://{secrets.token_hex(4)}")


def test_a_page_gives_back_its_documents_and_takes_little_room(storage: Storage) -> None:
    file, other = {"at": {"path": "a"}, "in": "a.jsonl", "version": "1"}, {"at": {"path": "b"}}
    documents = [
        Document("a#1", "file:a#1", size_bytes=10, place=file, record=[0, 10], metadata={"tag": ["x"]}, origin="a"),
        Document("a#2", "file:a#2", part="file:a").failed(ERROR),
        Document("a#3", "file:a#3", size_bytes=10, place=file, record=[20, 10]),
        Document("b", "file:b", name="b.txt", place=other, metadata={"é": {"n": None}}),
        Document("d", "file:d", S.PARSING, place=other, content_hash="0" * 64, first=3, chunks=2, tokens=40),
        Document("e", "file:e", S.UNCHANGED, content_hash="1" * 64, ended=True),
        Document("f", "file:f", S.LOADED, code="emptied", message="why"),
        Document("h", "file:h", S.LOADED, ended=True).warned([SCANNED, DocumentWarning("xfa_form", "It is a form.")]),
    ]
    assert write_documents(storage, "page", iter(documents)) == len(storage.read("page"))
    found = list(read_documents(storage, "page"))
    assert found == documents
    assert found[0].place is found[2].place  # once for a file, and not once for a record
    lines = [Document(f"a.parquet#{n}", f"file:{'0' * 32}/a.parquet#{n}", record=[0, n]) for n in range(6_000)]
    failed = [document.failed(ERROR, "0" * 64) for document in lines]
    write_documents(storage, "page", failed)
    assert sum(len(document.to_line()) for document in failed) > max(CHUNK_BYTES, 20 * len(storage.read("page")))
    assert list(read_documents(storage, "page")) == failed
    long = DocumentWarning("c" * 2000, "m" * 2000, tuple(range(1, 2000)))
    kept = DocumentWarning("c" * 500, "m" * 500, tuple(range(1, MAX_WARNED_PAGES + 1)))
    assert Document("a", "file:a").warned([long] * 2000).warnings == (kept,) * 10


def test_a_table_is_shared_with_a_key_whose_limits_name_it() -> None:
    for sinks, table, shares in (
        (["other/chunks", "store/chunks"], "chunks", True),
        (["store/chu*"], "chunks", True),
        (["store", "store/chunk", "store/chu*s", "stor/chunks", "other/*"], "chunks", False),
        (["store/*"], "chunks.docs", True),
        (["store/chu*"], "chunks.docs", False),
        (["store/chunks.d*"], "chunks.docs", True),
    ):
        assert Limits.model_validate({"sinks": sinks}).shares_table("store", table) is shares
    assert not NO_LIMITS.shares_table("store", "chunks")
