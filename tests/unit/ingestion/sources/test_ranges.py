"""Ranges of record files: what is left of them, what is tried again, and a sandbox that lies or dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import psutil
import pytest

from tasks.document_error import DocumentFailed, FailureStage
from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.parsing.sandbox import ChildFailed, Sandbox
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.record import Described, Range
from tasks.ingestion.sources.source import divided, holds
from tests.sandbox_process import pid_of
from tests.unit.ingestion.sources.reading import (
    ask,
    codes,
    fetched,
    files,
    jsonl,
    lines_of,
    pages,
    parquet,
    texts,
    uploaded,
)

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


MIB = 2**20
LYING = "tests.unit.ingestion.sources.lying_child"
MEMORY_BYTES = 600 * MIB
"""The libraries alone map two thirds of it."""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(ParseLimits(timeout_s=30, memory_bytes=MEMORY_BYTES)) as made:
        yield made


_WRITE = """
import sys, pyarrow as pa, pyarrow.parquet as pq
letter, chars, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = pa.table({"text": [letter * chars] * rows})
pq.write_table(table, sys.stdout.buffer, compression="zstd", dictionary_pagesize_limit=64 * 2**20)
"""


def small_file_of(letter: str, chars: int, rows: int) -> bytes:
    """Rows of one long text; written by a process of its own, because writing takes more than a gigabyte."""
    command = [sys.executable, "-c", _WRITE, letter, str(chars), str(rows)]
    return subprocess.run(command, capture_output=True, check=True).stdout


@pytest.mark.thorough
def test_a_text_that_many_rows_share_is_in_memory_once(tmp_path: Path, sandbox: Sandbox) -> None:
    data = small_file_of("x", 4 * MIB, 160)
    assert len(data) < 10_000
    access = replace(uploaded(tmp_path, limit=16 * MIB, a_parquet=data), ask=sandbox.ask)
    found = pages(files("a_parquet"), access)
    assert sum(page.documents for page in found) == 160
    assert 160 * 4 * MIB > MEMORY_BYTES
    first, *_ = open_source(files("a_parquet"), access).read(lines_of(found[0])[:1])
    assert first.text == "x" * (4 * MIB)


@pytest.mark.thorough
def test_a_file_that_needs_more_memory_fails_alone(tmp_path: Path, sandbox: Sandbox) -> None:
    fine = parquet([{"text": "fine"}])
    bomb = small_file_of("y", 300 * MIB, 1)
    access = replace(uploaded(tmp_path, limit=16 * MIB, a_parquet=bomb, b_parquet=fine), ask=sandbox.ask)
    assert codes(files("a_parquet", "b_parquet"), access) == {"a.parquet#1": "parse_memory"}
    assert texts(files("a_parquet", "b_parquet"), access) == {"b.parquet#1": "fine"}


def test_a_process_that_hangs_or_died_is_replaced(tmp_path: Path) -> None:
    access = uploaded(tmp_path, {f"{name}_{kind}": make for name in "abc" for kind, make in ALONE[name].items()})
    with Sandbox(ParseLimits(timeout_s=2, memory_bytes=MEMORY_BYTES)) as hasty:
        access = replace(access, ask=hasty.ask)
        assert texts(files("a_jsonl"), access) == {"a.jsonl#1": "a"}
        first = pid_of()
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        assert codes(files("b_parquet"), access) == {"b.parquet": "parse_timeout"}
        assert not psutil.pid_exists(first)
        assert texts(files("b_parquet"), access) == {"b.parquet#1": "b"}


ALONE = {name: {"jsonl": jsonl({"text": name}), "parquet": parquet([{"text": name}])} for name in "abc"}


def test_a_process_that_lies_fails_its_file_and_is_replaced(tmp_path: Path) -> None:
    access = uploaded(tmp_path, a_jsonl=jsonl({"text": "a"}))
    with Sandbox(ParseLimits(), module=LYING) as lying:
        access = replace(access, ask=lying.ask)
        lines = lines_of(open_source(files("a_jsonl"), access).page(None))
        assert pid_of(LYING) is not None
        [found] = open_source(files("a_jsonl"), access).read(lines)
        assert found.error is not None
        assert found.error.code == "parser_crashed"
        assert pid_of(LYING) is None
