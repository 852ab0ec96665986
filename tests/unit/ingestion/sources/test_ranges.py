"""Ranges of record files: what is left of them, what is tried again, and a sandbox that lies or dies."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from tasks.document_error import DocumentFailed, FailureStage
from tasks.ingestion.parsing.sandbox import ChildFailed
from tasks.ingestion.sources import content
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.record import Described, Range
from tasks.ingestion.sources.source import divided, holds
from tests.unit.ingestion.sources.formats import files, jsonl, parquet
from tests.unit.ingestion.sources.reading import ask, codes, fetched, lines_of, texts, uploaded

T = TypeVar("T")
ROWS = [{"id": str(n), "text": f"text {n}"} for n in range(10)]
MADE = {
    "jsonl": jsonl(*ROWS[:5]) + b"\n\nbad\n" + jsonl(*ROWS[5:]),
    "csv": b"id,text\n" + b"".join(f"{r['id']},{r['text']}\n".encode() for r in ROWS),
    "parquet": parquet(ROWS, 4),
}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("read", range(1, 11))
def test_what_is_left_of_a_range_is_read_from_where_it_was_left(tmp_path: Path, kind: str, read: int) -> None:
    access = uploaded(tmp_path, {f"a_{kind}": MADE[kind]})
    source = open_source(files(f"a_{kind}"), access)
    lines = lines_of(source.page(None))
    whole = list(source.read(lines))
    last = Range(*whole[read - 1].ref.record)
    there = next(line for line in lines if last.end <= Range(*line.record).end and line.record[3:] == [last.group])
    left = Range(*there.record).behind(last)
    parts = [divided(line, left) for line in lines]
    assert [one.ref for one in source.read([rest for _, rest in parts if rest])] == [one.ref for one in whole[read:]]
    assert list(source.read([front for front, _ in parts if front])) == whole[:read]
    assert all(holds(line, whole[read - 1].ref) == (line is there) for line in lines)


@pytest.mark.parametrize("kind", MADE)
def test_documents_are_read_again_by_their_own_lines(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = uploaded(tmp_path, {f"a_{kind}": MADE[kind]})
    source = open_source(files(f"a_{kind}"), access)
    whole = list(source.read(lines_of(source.page(None))))
    asked: list[int] = []
    read = content.StoredContent.read

    def noted(self: content.StoredContent, first: int, size: int) -> bytes:
        asked.append(size)
        return read(self, first, size)

    monkeypatch.setattr(content.StoredContent, "read", noted)
    assert list(source.read([one.ref for one in whole])) == whole
    assert len(asked) <= 3, "neighbours are read together"
    assert list(source.read([one.ref for one in whole][::3])) == whole[::3]


def test_what_a_sandbox_does_to_a_range_stays_with_it(tmp_path: Path) -> None:
    def dying(header: Any, body: bytes, read: Callable[..., T], *, stage: FailureStage) -> T:
        if header["type"] == "records" and b"bomb" in body:
            raise DocumentFailed("parse_memory", "Too much.", stage)
        return ask(header, body, read, stage=stage)

    access = replace(uploaded(tmp_path, a_jsonl=jsonl({"text": "bomb"}), b_jsonl=jsonl({"text": "b"})), ask=dying)
    spec = files("a_jsonl", "b_jsonl")
    assert texts(spec, access) == {"b.jsonl#1": "b"}
    assert codes(spec, access) == {"a.jsonl#1": "parse_memory"}
    assert [one.ref.failed(one.error).part for one in fetched(spec, access) if one.error] == ["*"]


TRUE: dict[str, Any] = {**Range(0, 1, 1)._asdict(), **Described("x", "t", named=True)._asdict()}
"""Of the first record; what a lie has in its place is wrong."""
LIES: list[tuple[str, Any]] = [
    ("records", 5), ("records", [[]]), ("records", {}), ("records", [[*TRUE.values(), 1]]),
    *(("records", [[*(TRUE | lie).values()]]) for lie in (
        {"start": None}, {"start": -1}, {"length": 999}, {"length": 0}, {"number": 0}, {"number": True}, {"group": 1},
        {"id": "\0"}, {"id": 1}, {"text": 7}, {"text": "t\0"}, {"metadata": None}, {"named": 1},
        {"error": "ab"}, {"error": ["code", 5]}, {"error": ["code"]},
    )),
    ("cut", {}), ("cut", {"start": -1}),
    ("cut", {"start": 0, "length": 0, "numbers": 0, "records": 0, "skip": False}),
    ("cut", {"start": 0, "length": 99, "numbers": 0, "records": 0, "skip": False}),
]  # fmt: skip


def test_what_is_told_of_a_record_is_true(tmp_path: Path) -> None:
    """Else no lie would show anything."""

    def telling(header: Any, body: bytes, read: Callable[..., T], *, stage: FailureStage) -> T:
        records = header["type"] == "records"
        return read({}, orjson.dumps([[*TRUE.values()]])) if records else ask(header, body, read, stage=stage)

    access = replace(uploaded(tmp_path, a_jsonl=jsonl({"text": "a"})), ask=telling)
    assert texts(files("a_jsonl"), access) == {"x": "t"}


@pytest.mark.parametrize(("what", "answer"), LIES)
def test_no_answer_is_trusted(tmp_path: Path, what: str, answer: Any) -> None:
    def lying(header: Any, body: bytes, read: Callable[..., T], *, stage: FailureStage) -> T:
        if header["type"] != what:
            return ask(header, body, read, stage=stage)
        with pytest.raises(ChildFailed):
            return read(answer, b"") if what == "cut" else read({}, orjson.dumps(answer))
        raise DocumentFailed("parser_crashed", "It lies.", stage)

    access = replace(uploaded(tmp_path, a_jsonl=jsonl({"text": "a"}), b_txt=b"b"), ask=lying)
    found = fetched(files("a_jsonl", "b_txt"), access)
    assert [one.error.code for one in found if one.error] == ["parser_crashed"]
    assert [one.data for one in found if one.data] == [b"b"]
