"""Buckets: of S3 over a socket, and behind a driver that lists folders. Every object once, and nothing else."""

from functools import partial
from typing import Any

import fsspec
import pytest
from botocore.exceptions import ClientError
from s3fs.errors import translate_boto_error

from tasks.document_error import DocumentFailed
from tasks.errors import SourceFailed, StorageUnavailable
from tasks.ingestion.sources import bucket
from tasks.ingestion.sources.open_source import open_source
from tests.s3_server import S3Server
from tests.unit.ingestion.sources.reading import below, lines_of, outcomes

FILES = {
    "in/a.md": b"A",
    "in/a b.md": b"blank",
    "in/a/b.jsonl": b'{"text":"one"}\n{"text":"two"}',
    "in/a/\xe9.md": b"accent",
    "in/.hidden": b"no",
    "in/c/d/e.txt": b"E",
    "other/secret": b"no",
}


GLOBS = {
    "in/**": ["in/a b.md", "in/a.md", "in/a/b.jsonl#1", "in/a/b.jsonl#2", "in/a/é.md", "in/c/d/e.txt"],
    "in": ["in/a b.md", "in/a.md", "in/a/b.jsonl#1", "in/a/b.jsonl#2", "in/a/é.md", "in/c/d/e.txt"],
    "in/*": ["in/a b.md", "in/a.md"],
    "in/c/d/e.txt": ["in/c/d/e.txt"],
    "in/**/*.txt": ["in/c/d/e.txt"],
}


@pytest.fixture(params=["s3", "memory"])
def root(request: pytest.FixtureRequest, s3: S3Server) -> str:
    fsspec.filesystem(request.param).clear_instance_cache()  # drivers of earlier servers
    files = fsspec.filesystem(request.param)
    url = s3.bucket() if request.param == "s3" else "memory://the-bucket"
    files.pipe({f"{url}/{name}": data for name, data in FILES.items()})
    return url


def test_a_bucket_is_read(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_S3_KEYS", 3)
    texts = {name: data.decode() for name, data in FILES.items()} | {"in/a/b.jsonl#1": "one", "in/a/b.jsonl#2": "two"}
    for glob, expected in GLOBS.items():
        found = outcomes({"urls": [f"{root}/{glob}"]}, below(f"{root}/in", files=1, records=1))
        assert found == {name: texts[name] for name in expected}
    for path in ("other/**", "in/../other/**", "in/%2e%2e/other/*", "inside/*", ""):
        with pytest.raises(SourceFailed, match="EMBEDQ_INGEST_ROOTS"):
            open_source({"urls": [f"{root}/{path}"]}, below(f"{root}/in"))


def test_every_key_is_a_name_and_a_bad_one_is_a_fault_of_its_own(s3: S3Server) -> None:
    files, root = fsspec.filesystem("s3"), s3.bucket()
    name = root.rpartition("/")[2]
    good = ["docs/a.md", "docs/a//b.md", "docs/sub/c.md", "docs/[1].md"]
    odd = ["docs/", "docs/sub/", "docs//", "docs/../up.md", "docs/./x.md", "docs/.hidden/y.md", "docs/e//.md"]
    for key in [*good, *odd]:
        files.call_s3("put_object", Bucket=name, Key=key, Body=key.encode())
    access = below(root, files=2)
    assert outcomes({"urls": [f"{root}/docs"]}, access) == {
        **{f"{name}/{key}": key for key in good},
        **{f"{name}/docs/{key}": "<invalid_name>" for key in ("../up.md", "./x.md")},
    }
    for key in ("docs/[1].md", "docs/a//b.md"):
        assert outcomes({"urls": [f"{root}/{key}"]}, access) == {f"{name}/{key}": key}


def test_what_a_bucket_will_never_give_is_said_and_does_not_hold_up_the_rest() -> None:
    def ask(code: str, status: int) -> None:
        said = {"Error": {"Code": code, "Message": "a-secret"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise translate_boto_error(ClientError(said, "HeadObject"))

    for code, status in (("SlowDown", 503), ("RequestTimeout", 408)):
        with pytest.raises(StorageUnavailable):
            bucket.answered(partial(ask, code, status))
    with pytest.raises(DocumentFailed) as raised:
        bucket.answered(lambda: ask("400", 400))  # encrypted with a key of the customer's own
    assert "a-secret" not in raised.value.error.message
    for root, said in (
        ("https://example.org/docs", "is not read"),
        ("nosuchscheme://bucket", "is not known"),
        ("oci://bucket", "pip install"),
    ):
        with pytest.raises(SourceFailed, match=said):
            open_source({"urls": [f"{root}/a.txt"]}, below(root)).page(None)


@pytest.mark.parametrize("root", ["memory"], indirect=True)
def test_a_driver_that_fails_makes_the_job_wait_and_tells_no_secret(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, access = {"urls": [f"{root}/in/**"]}, below(f"{root}/in")
    source = open_source(spec, access)
    refs = lines_of(source.page(None))

    def down(*_: Any, **__: Any) -> None:
        raise ConnectionError("https://user:SECRET@host")

    for name in ("ls", "info", "cat_file"):
        monkeypatch.setattr(fsspec.implementations.memory.MemoryFileSystem, name, down)
    with pytest.raises(StorageUnavailable) as listing:
        open_source(spec, access).page(None)
    assert "SECRET" not in listing.value.detail
    with pytest.raises(StorageUnavailable):
        list(source.read(refs))
