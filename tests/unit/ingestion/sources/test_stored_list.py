"""Lists of what a request named, kept in the storage."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tasks.errors import SourceFailed
from tasks.ingestion.sources.open_source import open_source
from tests.unit.ingestion.sources.reading import below, documents, tree, uploaded


def lines(*values: Any) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in values)


def test_a_stored_list_is_read_by_who_lists_and_by_nobody_else(tmp_path: Path) -> None:
    access = replace(uploaded(tmp_path, a_txt=b"a", b_txt=b"b"), listed="ingestions/i/listed.jsonl")
    access.storage.write("ingestions/i/listed.jsonl", lines("a_txt", {"id": "b_txt", "document_id": "x"}))
    spec = {"files": 2}
    refs = documents(spec, access)
    assert [ref.id for ref in refs] == ["a.txt", "x"]
    access.storage.delete("ingestions/i/")
    assert [one.data for one in open_source(spec, access).read(refs)] == [b"a", b"b"]
    with pytest.raises(SourceFailed, match="no longer in the storage") as refused:
        documents(spec, access)
    assert refused.value.param == "source.files"


def test_stored_urls_are_held_to_the_roots_like_others(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", "a.md")
    access = replace(below(root), storage=uploaded(tmp_path).storage, listed="urls.jsonl")
    access.storage.write("urls.jsonl", lines(f"{root}/**"))
    assert [ref.id for ref in documents({"urls": 1}, access)] == ["root/a.md"]
    access.storage.write("urls.jsonl", lines(f"{root}/**", "/etc/**"))
    with pytest.raises(SourceFailed, match="EMBEDQ_INGEST_ROOTS") as refused:
        documents({"urls": 2}, access)
    assert refused.value.param == "source.urls[1]"
