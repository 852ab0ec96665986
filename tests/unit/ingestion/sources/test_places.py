"""Uploads that are gone, documents in the request, buckets, and record files that change under the job."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from botocore.exceptions import ClientError
from s3fs.errors import translate_boto_error

from tasks.document_error import DocumentFailed
from tasks.errors import SourceFailed, StorageUnavailable
from tasks.ingestion.sources.bucket import answered
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.page import PageLimits
from tasks.ingestion.sources.source import SourceAccess
from tasks.records.documents import Document
from tasks.storage.storage import Storage
from tests.unit.ingestion.sources.reading import (
    ask,
    below,
    codes,
    contents,
    documents,
    faults_of,
    jsonl,
    lines_of,
    pages,
    uploaded,
)

# ---- drivers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("400", 400, DocumentFailed),  # encrypted with a key of the customer's own
        ("KMS.DisabledException", 400, DocumentFailed),
        ("SlowDown", 503, StorageUnavailable),
        ("RequestTimeout", 408, StorageUnavailable),
        ("InternalError", 500, StorageUnavailable),
    ],
)
def test_what_a_bucket_will_never_give_does_not_hold_up_the_rest(code: str, status: int, kind: type[Exception]) -> None:
    def ask() -> None:
        said = {"Error": {"Code": code, "Message": "a-secret"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise translate_boto_error(ClientError(said, "HeadObject"))

    with pytest.raises(kind) as raised:
        answered(ask)
    assert "a-secret" not in str(raised.value)


# ---- uploads ---------------------------------------------------------------------------------------------------------


def test_an_upload_that_was_deleted_is_a_fault(tmp_path: Path) -> None:
    access = uploaded(tmp_path, a_txt=b"a", b_jsonl=b'{"text":"b"}', c_txt=b"c", d_jsonl=b'{"text":"d"}')
    spec = {"files": ["a_txt", "nowhere", "b_jsonl", "c_txt", "d_jsonl"]}
    source = open_source(spec, access)
    refs = lines_of(source.page(None))
    assert codes(spec, access) == {"nowhere": "gone"}
    access.storage.delete("files/a_txt")
    access.storage.delete("files/b_jsonl")
    without_c = {name: file for name, file in access.files.items() if name != "c_txt"}
    again = open_source(spec, replace(access, files=without_c))
    assert [one.error.code if one.error else one.text for one in again.read(refs)] == ["gone", "gone", "gone", "d"]


# ---- documents in the request ----------------------------------------------------------------------------------------


def inline(tmp_path: Path, *given: Any) -> SourceAccess:
    access = uploaded(tmp_path, page=PageLimits(records=2))
    access = replace(access, listed="ingestions/listed.jsonl")
    access.storage.write("ingestions/listed.jsonl", jsonl(*given))
    return access


def test_inline_documents_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    good = [{"id": "a", "text": "A", "metadata": {"k": 1}}, {"id": 2, "text": "B"}, {"id": "c", "text": "C"}]
    bad = [{"id": "d"}, {"id": "e", "text": 5}, "f", {"text": "no id"}]
    access = inline(tmp_path, *good, *bad)
    spec: dict[str, Any] = {"documents": 7}
    found = contents(spec, access)
    assert [(one.ref.id, one.text, one.ref.metadata) for one in found] == [
        ("a", "A", {"k": 1}), ("2", "B", {}), ("c", "C", {})
    ]  # fmt: skip
    assert codes(spec, access) == {
        "d": "missing_field", "e": "invalid_field", "#6": "malformed_record", "#7": "missing_field"
    }  # fmt: skip
    assert found[0].ref.uri == "inline:a#1"
    assert len(pages(spec, access)) == 4


# ---- record files that change ----------------------------------------------------------------------------------------


def test_a_record_file_that_changes_is_not_read_at_places_that_no_longer_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text":"one"}\n{"text":"two"}\n')
    (tmp_path / "b.jsonl").write_text('{"text":"fine"}')
    access = below(tmp_path, records=1)
    spec = {"urls": [f"{tmp_path}/*.jsonl"]}
    first = open_source(spec, access).page(None)
    path.write_text('{"text":"another one"}\n{"text":"two"}\n')
    assert [one.error and one.error.code for one in open_source(spec, access).read(lines_of(first))] == ["changed"]
    second = open_source(spec, access).page(first.cursor)
    assert [(fault.id, fault.code) for fault in faults_of(second)] == [(f"{tmp_path.name}/a.jsonl", "changed")]
    third = open_source(spec, access).page(second.cursor)
    assert [ref.id for ref in lines_of(third)] == [f"{tmp_path.name}/b.jsonl#1"]


# ---- buckets, behind fsspec's drivers --------------------------------------------------------------------------------


@pytest.fixture
def bucket() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    name = f"bucket-{os.getpid()}"
    files.pipe({
        f"/{name}/in/a.md": b"A",
        f"/{name}/in/a/b.jsonl": b'{"text":"one"}\n{"text":"two"}',
        f"/{name}/in/.hidden": b"no",
        f"/{name}/in/c/d/e.txt": b"E",
        f"/{name}/other/secret": b"no",
    })  # fmt: skip
    yield name
    files.rm(f"/{name}", recursive=True)


def remote(name: str) -> SourceAccess:
    return SourceAccess(Storage.open("memory://unused"), ask, roots=[f"memory://{name}/in"])


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("in/**", ["a.md", "a/b.jsonl#1", "a/b.jsonl#2", "c/d/e.txt"]),
        ("in", ["a.md", "a/b.jsonl#1", "a/b.jsonl#2", "c/d/e.txt"]),
        ("in/*", ["a.md"]),
        ("in/c/d/e.txt", ["c/d/e.txt"]),
        ("in/**/*.txt", ["c/d/e.txt"]),
    ],
)
def test_globs_in_a_bucket(bucket: str, glob: str, expected: list[str]) -> None:
    spec = {"urls": [f"memory://{bucket}/{glob}"]}
    access = replace(remote(bucket), page=PageLimits(files=1, records=1))
    assert [ref.id for ref in documents(spec, access)] == [f"in/{name}" for name in expected]


def test_a_bucket_is_read(bucket: str) -> None:
    found = contents({"urls": [f"memory://{bucket}/in/**"]}, remote(bucket))
    assert [one.text or one.data for one in found] == [b"A", "one", "two", b"E"]
    assert found[0].ref.uri == f"memory://{bucket}/in/a.md"


@pytest.mark.parametrize("path", ["other/**", "in/../other/**", "in/%2e%2e/other/*", "inside/*", ""])
def test_other_parts_of_a_bucket_are_not(bucket: str, path: str) -> None:
    with pytest.raises(SourceFailed, match="EMBEDQ_INGEST_ROOTS"):
        open_source({"urls": [f"memory://{bucket}/{path}"]}, remote(bucket))


def test_a_driver_that_fails_makes_the_job_wait_and_tells_no_secret(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source({"urls": [f"memory://{bucket}/in/**"]}, remote(bucket))
    refs: list[Document] = lines_of(source.page(None))

    def down(*_: Any, **__: Any) -> None:
        raise ConnectionError("https://user:SECRET@host")

    for name in ("ls", "info", "cat_file"):
        monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, name, down)
    with pytest.raises(StorageUnavailable) as listing:
        open_source({"urls": [f"memory://{bucket}/in/**"]}, remote(bucket)).page(None)
    with pytest.raises(StorageUnavailable):
        list(source.read(refs))
    assert "SECRET" not in listing.value.detail


@pytest.mark.parametrize(
    ("root", "said"),
    [
        ("https://example.org/docs", "is not read"),
        ("nosuchscheme://bucket", "is not known"),
        ("oci://bucket", "pip install"),
    ],
)
def test_a_root_that_cannot_be_read_says_why(root: str, said: str) -> None:
    access = SourceAccess(Storage.open("memory://unused"), ask, roots=[root])
    with pytest.raises(SourceFailed, match=said):
        open_source({"urls": [f"{root}/a.txt"]}, access).page(None)
