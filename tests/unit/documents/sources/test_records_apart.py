"""Records that a process of their own reads: what a file does to it stays with that file."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from stack.testing import PATIENCE_S
from tasks.documents.sources import content
from tasks.documents.sources.records_process import RecordProcesses
from tasks.documents.sources.source import PageLimits
from tasks.documents.sources.source_kinds import open_source
from tasks.ingestion.parsing.limits import ParseLimits
from tests.unit.documents.sources.formats import files, jsonl, parquet
from tests.unit.documents.sources.reading import codes, contents, documents, pages, refs_of, texts, uploaded

MIB = 2**20
MEMORY_BYTES = 400 * MIB
"""The libraries alone map the half of it."""


@pytest.fixture
def processes() -> Iterator[RecordProcesses]:
    made = RecordProcesses(ParseLimits(timeout_s=30, memory_bytes=MEMORY_BYTES))
    yield made
    made.close()


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


def test_a_text_that_many_rows_share_is_in_memory_once(tmp_path: Path, processes: RecordProcesses) -> None:
    data = small_file_of("x", 4 * MIB, 110)
    assert len(data) < 10_000
    access = uploaded(tmp_path, limit=16 * MIB, apart=processes, a_parquet=data)
    found = pages(files("a_parquet"), access)
    assert sum(len(refs_of(one)) for one in found) == 110
    assert 110 * 4 * MIB > MEMORY_BYTES
    [first] = list(open_source(files("a_parquet"), access).read(refs_of(found[0])))
    assert first.text == "x" * (4 * MIB)


def test_a_file_that_needs_more_memory_fails_alone(tmp_path: Path, processes: RecordProcesses) -> None:
    fine = parquet([{"text": "fine"}])
    bomb = small_file_of("y", 150 * MIB, 1)
    access = uploaded(tmp_path, limit=16 * MIB, apart=processes, a_parquet=bomb, b_parquet=fine)
    assert codes(files("a_parquet", "b_parquet"), access) == {"a.parquet": "parse_memory"}
    assert texts(files("a_parquet", "b_parquet"), access) == {"b.parquet#1": "fine"}


def test_a_row_above_the_limit_fails_alone(tmp_path: Path, processes: RecordProcesses) -> None:
    data = parquet([{"text": "a"}, {"text": "x" * 3000}, {"text": None}, {"text": "b"}])
    access = uploaded(tmp_path, limit=2000, apart=processes, a_parquet=data)
    assert texts(files("a_parquet"), access) == {"a.parquet#1": "a", "a.parquet#3": "", "a.parquet#4": "b"}
    assert codes(files("a_parquet"), access) == {"a.parquet#2": "document_too_large"}


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"not parquet", parquet([{"text": "x"}])[:-9] + b"\xff" * 9])
def test_a_damaged_file_is_one_fault(tmp_path: Path, processes: RecordProcesses, damage: bytes) -> None:
    access = uploaded(tmp_path, apart=processes, a_parquet=damage, b_parquet=parquet([{"title": "x"}]))
    assert codes(files("a_parquet", "b_parquet"), access) == {
        "a.parquet": "corrupt_document",
        "b.parquet": "missing_field",
    }


def test_pages_go_on_where_the_one_before_ended(
    tmp_path: Path, processes: RecordProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": n, "text": f"text {n}", "year": 2000 + n} for n in range(1000)]
    access = uploaded(tmp_path, apart=processes, a_parquet=parquet(rows, 10_000), b_parquet=parquet(rows, 10_000))
    asked: dict[str, int] = {"a": 0, "b": 0}
    read = content.StoredContent.read

    def noted(self: content.StoredContent, first: int, size: int) -> bytes:
        data = read(self, first, size)
        asked[self.name[len("files/")]] += len(data)
        return data

    monkeypatch.setattr(content.StoredContent, "read", noted)
    spec = {"fields": {"metadata": ["year"]}}
    assert len(documents(files("a_parquet", **spec), access)) == 1000
    small = replace(access, page=PageLimits(records=10))
    found = contents(files("b_parquet", **spec), small)
    assert [(one.ref.id, one.text) for one in found] == [(str(row["id"]), row["text"]) for row in rows]
    assert found[7].ref.metadata == {"year": 2007}
    assert asked["b"] <= 3 * asked["a"]  # to list and to read, in 200 pages
    [pid] = processes.idle_pids
    assert psutil.pid_exists(pid)


def test_a_process_that_hangs_or_died_is_replaced(tmp_path: Path) -> None:
    hasty = RecordProcesses(ParseLimits(timeout_s=0.5, memory_bytes=MEMORY_BYTES))
    made = {f"{name}_parquet": parquet([{"text": name}]) for name in "abc"}
    access = uploaded(tmp_path, made, apart=hasty)
    assert texts(files("a_parquet"), access) == {"a.parquet#1": "a"}
    [pid] = hasty.idle_pids
    os.kill(pid, signal.SIGSTOP)
    assert codes(files("b_parquet"), access) == {"b.parquet": "parse_timeout"}
    assert not psutil.pid_exists(pid)
    assert texts(files("b_parquet"), access) == {"b.parquet#1": "b"}
    [pid] = hasty.idle_pids
    os.kill(pid, signal.SIGKILL)
    psutil.Process(pid).wait(PATIENCE_S)
    assert texts(files("c_parquet"), access) == {"c.parquet#1": "c"}
    hasty.close()


def test_a_process_that_lies_fails_its_file_and_is_replaced(tmp_path: Path) -> None:
    lying = RecordProcesses(ParseLimits(timeout_s=30), module="tests.unit.documents.sources.lying_child")
    access = uploaded(tmp_path, apart=lying, a_parquet=parquet([{"text": "a"}]))
    assert codes(files("a_parquet"), access) == {"a.parquet": "parser_crashed"}
    assert lying.idle_pids == []
    lying.close()


def test_a_line_of_very_many_lists_is_refused_before_it_is_read(tmp_path: Path) -> None:
    bomb = b'{"text": "x", "z": [' + b"[]," * 1_000_000 + b"0]}\n"
    access = uploaded(tmp_path, limit=16 * MIB, a_jsonl=bomb + jsonl({"id": 1, "text": ", [ {" * 1000}))
    assert codes(files("a_jsonl"), access) == {"a.jsonl#1": "document_too_large"}
    assert list(texts(files("a_jsonl"), access)) == ["1"]
