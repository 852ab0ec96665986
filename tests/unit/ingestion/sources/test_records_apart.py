"""Records in the real sandbox: what a file does to its process stays with that file."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.parsing.sandbox import Sandbox
from tasks.ingestion.sources import content
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.page import PageLimits
from tests.sandbox_process import pid_of
from tests.unit.ingestion.sources.formats import files, jsonl, parquet
from tests.unit.ingestion.sources.reading import codes, contents, lines_of, pages, texts, uploaded

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


def test_a_text_that_many_rows_share_is_in_memory_once(tmp_path: Path, sandbox: Sandbox) -> None:
    data = small_file_of("x", 4 * MIB, 160)
    assert len(data) < 10_000
    access = replace(uploaded(tmp_path, limit=16 * MIB, a_parquet=data), ask=sandbox.ask)
    found = pages(files("a_parquet"), access)
    assert sum(page.documents for page in found) == 160
    assert 160 * 4 * MIB > MEMORY_BYTES
    first, *_ = open_source(files("a_parquet"), access).read(lines_of(found[0])[:1])
    assert first.text == "x" * (4 * MIB)


def test_a_file_that_needs_more_memory_fails_alone(tmp_path: Path, sandbox: Sandbox) -> None:
    fine = parquet([{"text": "fine"}])
    bomb = small_file_of("y", 300 * MIB, 1)
    access = replace(uploaded(tmp_path, limit=16 * MIB, a_parquet=bomb, b_parquet=fine), ask=sandbox.ask)
    assert codes(files("a_parquet", "b_parquet"), access) == {"a.parquet#1": "parse_memory"}
    assert texts(files("a_parquet", "b_parquet"), access) == {"b.parquet#1": "fine"}


def test_pages_go_on_where_the_one_before_ended(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": n, "text": f"text {n}", "year": 2000 + n} for n in range(1000)]
    access = replace(uploaded(tmp_path, a_parquet=parquet(rows, 10_000)), ask=sandbox.ask, page=PageLimits(records=10))
    asked = 0
    read = content.StoredContent.read

    def noted(self: content.StoredContent, first: int, size: int) -> bytes:
        nonlocal asked
        data = read(self, first, size)
        asked += len(data)
        return data

    monkeypatch.setattr(content.StoredContent, "read", noted)
    found = contents(files("a_parquet", fields={"metadata": ["year"]}), access)
    assert [(one.ref.id, one.text) for one in found] == [(str(row["id"]), row["text"]) for row in rows]
    assert found[7].ref.metadata == {"year": 2007}
    assert asked == access.files["a_parquet"].size_bytes, "it is copied once, to list it and to read it in 100 pages"


def test_a_process_that_hangs_or_died_is_replaced(tmp_path: Path) -> None:
    access = uploaded(tmp_path, {f"{name}_{kind}": make for name in "abc" for kind, make in MADE[name].items()})
    with Sandbox(ParseLimits(timeout_s=2, memory_bytes=MEMORY_BYTES)) as hasty:
        access = replace(access, ask=hasty.ask)
        assert texts(files("a_jsonl"), access) == {"a.jsonl#1": "a"}
        first = pid_of()
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        assert codes(files("b_parquet"), access) == {"b.parquet": "parse_timeout"}
        assert not psutil.pid_exists(first)
        assert texts(files("b_parquet"), access) == {"b.parquet#1": "b"}


MADE = {name: {"jsonl": jsonl({"text": name}), "parquet": parquet([{"text": name}])} for name in "abc"}


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
