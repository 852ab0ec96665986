"""Ranges of record files: what is left of them, and a sandbox that lies or runs out of memory."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import orjson
import pytest

from tasks.document_error import DocumentFailed, FailureStage
from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.parsing.sandbox import ChildFailed, Sandbox
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.record import Described, Range
from tasks.ingestion.sources.source import divided, holds
from tests.unit.ingestion.sources.reading import ask, jsonl, lines_of, outcomes, parquet, uploaded

T = TypeVar("T")
MIB = 2**20
ROWS = [{"id": str(n), "text": f"text {n}"} for n in range(10)]
MADE = {
    "jsonl": jsonl(*ROWS[:5]) + b"\n\nbad\n" + jsonl(*ROWS[5:]),
    "csv": b"id,text\n" + b"".join(f"{r['id']},{r['text']}\n".encode() for r in ROWS),
    "parquet": parquet(ROWS, 4),
}


@pytest.mark.parametrize("kind", MADE)
def test_what_is_left_of_a_range_is_read_from_where_it_was_left(kind: str) -> None:
    source = open_source({"files": [f"a.{kind}"]}, uploaded({f"a.{kind}": MADE[kind]}))
    lines = lines_of(source.page(None))
    whole = list(source.read(lines))
    for read in range(1, 11):
        last = Range(*whole[read - 1].ref.record)
        there = next(line for line in lines if last.end <= Range(*line.record).end and line.record[3:] == [last.group])
        parts = [divided(line, Range(*there.record).behind(last)) for line in lines]
        assert [one.ref for one in source.read([rest for _, rest in parts if rest])] == [
            one.ref for one in whole[read:]
        ]
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


def answered(what: str, answer: Any) -> dict[str, str]:
    """What became of a record and a document where the sandbox answers so."""

    def lying(header: Any, body: bytes, read: Callable[..., T], *, stage: FailureStage) -> T:
        if header["type"] != what:
            return ask(header, body, read, stage=stage)
        try:
            return read(answer, b"") if what == "cut" else read({}, orjson.dumps(answer))
        except ChildFailed:
            raise DocumentFailed("parser_crashed", "It lies.", stage) from None

    access = replace(uploaded({"a.jsonl": jsonl({"text": "a"}), "b.txt": b"b"}), ask=lying)
    return outcomes({"files": ["a.jsonl", "b.txt"]}, access)


@pytest.mark.parametrize(("what", "answer"), LIES)
def test_no_answer_is_trusted(what: str, answer: Any) -> None:
    assert [*answered(what, answer).values()] in (["<parser_crashed>", "b"], ["b", "<parser_crashed>"])


def test_a_true_answer_is_taken() -> None:
    """Else no lie would show anything."""
    assert answered("records", [[*TRUE.values()]]) == {"x": "t", "b.txt": "b"}


BOMB = f"""
import sys, pyarrow as pa, pyarrow.parquet as pq
table = pa.table({{"text": ["y" * {300 * MIB}]}})
pq.write_table(table, sys.stdout.buffer, compression="zstd", dictionary_pagesize_limit={64 * MIB})
"""


@pytest.mark.thorough
def test_a_file_that_needs_more_memory_fails_alone() -> None:
    # Written by a process of its own, because writing takes more than a gigabyte.
    bomb = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, check=True).stdout
    made = {"a.parquet": bomb, "b.parquet": parquet([{"text": "fine"}])}
    with Sandbox(ParseLimits(timeout_s=30, memory_bytes=600 * MIB)) as sandbox:  # the libraries map two thirds of it
        access = replace(uploaded(made, limit=16 * MIB), ask=sandbox.ask)
        assert outcomes({"files": [*made]}, access) == {"a.parquet#1": "<parse_memory>", "b.parquet#1": "fine"}
