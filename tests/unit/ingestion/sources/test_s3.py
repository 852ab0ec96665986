"""Buckets of S3, over a socket: every object once, and a prefix of many keys a page at a time."""

from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.asyn import sync_wrapper

from tasks.document_error import DocumentFailed
from tasks.ingestion.sources import bucket
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.page import PageLimits
from tasks.ingestion.sources.source import SourceAccess
from tasks.storage.storage import Storage
from tests.s3_server import S3Server
from tests.thorough import some
from tests.unit.ingestion.sources.reading import ask, codes, contents, documents


@pytest.fixture
def s3_root(s3: S3Server) -> str:
    """The URL of a new bucket; drivers of earlier servers are forgotten."""
    fsspec.filesystem("s3").clear_instance_cache()
    return s3.bucket()


def s3_access(root: str, *, files: int = 64) -> SourceAccess:
    return SourceAccess(Storage.open("memory://unused"), ask, roots=[root], page=PageLimits(files=files))


@pytest.mark.parametrize(("keys", "files"), some([(1, 1), (3, 2), (1, 5), (100, 100)], (3, 2)))
def test_every_object_comes_once_whatever_the_sizes_of_pages(
    s3_root: str, monkeypatch: pytest.MonkeyPatch, keys: int, files: int
) -> None:
    monkeypatch.setattr(bucket, "_S3_KEYS", keys)
    names = ["a.md", "a/b.md", "a/c/d.md", "a/é.md", "a b.md", "a+b.md", "b.md", "c/.hidden", "c/x.md", "日/本.md"]
    fsspec.filesystem("s3").pipe({f"{s3_root}/in/{name}": name.encode() for name in names})
    fsspec.filesystem("s3").touch(f"{s3_root}/in/c/")
    found = [ref.id for ref in documents({"urls": [f"{s3_root}/in/**"]}, s3_access(s3_root, files=files))]
    bucket_name = s3_root.rpartition("/")[2]
    assert sorted(found) == sorted(f"{bucket_name}/in/{name}" for name in names if name != "c/.hidden")


class Answers:
    """Of a bucket, one after the other."""

    req_kw: ClassVar[dict[str, Any]] = {}

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.left = list(answers)

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    def call_s3(self, _name: str, **_asked: Any) -> dict[str, Any]:
        return self.left.pop(0)


EMPTY = {"KeyCount": 0, "IsTruncated": False}
MORE = {"KeyCount": 0, "IsTruncated": True, "NextContinuationToken": "t"}
ONE = {"KeyCount": 1, "IsTruncated": True, "NextContinuationToken": "t", "Contents": [{"Key": "in/a.md", "Size": 1}]}


@pytest.mark.parametrize("answers", [(MORE, ONE, EMPTY), (ONE, EMPTY), (MORE, MORE, ONE, MORE, EMPTY)])
def test_an_empty_answer_is_no_end_where_more_was_said_to_follow(answers: tuple[dict[str, Any], ...]) -> None:
    found = bucket.objects(Answers(*answers), ("bucket/in", ("**",)), "", lambda: None)
    assert [each.path for each in found] == ["a.md"]


def test_a_prefix_without_keys_is_gone() -> None:
    with pytest.raises(DocumentFailed, match="gone"):
        list(bucket.objects(Answers(EMPTY), ("bucket/in", ("**",)), "", lambda: None))


def test_a_large_prefix_is_taken_in_pages_and_gone_on_with(s3_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.filesystem("s3").pipe({f"{s3_root}/{n:03}.txt": b"x" for n in range(100)})
    answers: list[int] = []
    driver = type(fsspec.filesystem("s3"))
    call = driver._call_s3

    async def noted(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        answer = await call(self, method, *arguments, **named)
        if method.startswith("list_objects"):
            answers.append(len(answer.get("Contents", ())))
        return answer

    monkeypatch.setattr(driver, "_call_s3", noted)
    monkeypatch.setattr(driver, "call_s3", sync_wrapper(noted))
    monkeypatch.setattr(bucket, "_S3_KEYS", 20)
    source, cursor, listed = open_source({"urls": [f"{s3_root}/**"]}, s3_access(s3_root, files=10)), None, 0
    while listed == 0 or cursor is not None:
        page = source.page(cursor)
        cursor, listed = page.cursor, listed + page.documents
    assert listed == 100
    assert max(answers) == 20
    assert sum(answers) == 100, "no page begins at the beginning again"


def test_every_key_is_a_name_and_a_bad_one_is_a_fault_of_its_own(s3_root: str) -> None:
    files = fsspec.filesystem("s3")
    bucket_name = s3_root.rpartition("/")[2]
    good = ["docs/a.md", "docs/a//b.md", "docs/sub/c.md", "docs/[1].md", "docs/e//.md"]
    for key in [*good, "docs/", "docs/sub/", "docs//", "docs/../up.md", "docs/./x.md", "docs/.hidden/y.md"]:
        files.call_s3("put_object", Bucket=bucket_name, Key=key, Body=key.encode())
    spec, access = {"urls": [f"{s3_root}/docs"]}, s3_access(s3_root, files=2)
    assert {one.ref.id: one.data for one in contents(spec, access)} == {
        f"{bucket_name}/{key}": key.encode() for key in good if key != "docs/e//.md"
    }
    assert codes(spec, access) == {f"{bucket_name}/docs/{key}": "invalid_name" for key in ("../up.md", "./x.md")}
    [literal] = documents({"urls": [f"{s3_root}/docs/[1].md"]}, access)
    assert literal.id == f"{bucket_name}/docs/[1].md"
    [odd] = documents({"urls": [f"{s3_root}/docs/a//b.md"]}, access)
    assert odd.id == f"{bucket_name}/docs/a//b.md"
