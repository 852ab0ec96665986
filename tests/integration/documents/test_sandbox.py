"""The sandbox: a real process that hangs, crashes, lies and runs out of memory, alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from tasks.document_error import DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.extracted import Extracted
from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.parsing.sandbox import (
    MAX_HARMLESS_BYTES,
    MAX_HEADER_BYTES,
    ChildFailed,
    ParserNotStarted,
    Sandbox,
    _extracted,
    _whole,
)
from tests.integration.documents.sandbox_that_misbehaves import pid_of
from tests.processes import wait_until
from tests.source_tree import CHECKOUT

MODULE = "tests.integration.documents.sandbox_that_misbehaves"
LIMITS = ParseLimits(timeout_s=20, memory_bytes=2**28)
WARNING = ["pages_without_text", "Page 2 has no text.", [2]]
GOOD = {"title": " A  title ", "structure": "markdown", "pages": [0, 1, 1], "warnings": [WARNING]}


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(LIMITS, module=MODULE) as sandbox:
        yield sandbox


def say(sandbox: Sandbox, what: str) -> Extracted:
    return sandbox.read(what.encode(), "a.html")


def code(sandbox: Sandbox, what: str | bytes, name: str = "a.html") -> str:
    with pytest.raises(DocumentFailed) as failed:
        sandbox.read(what.encode() if isinstance(what, str) else what, name)
    assert "secret" not in failed.value.error.message
    assert failed.value.error.stage == "parsing"
    return failed.value.error.code


def answered(header: Any, body: str) -> str:
    return f"answer {orjson.dumps([header, body]).decode()}"


def gone(pid: int | None) -> bool:
    return pid is not None and not psutil.pid_exists(pid)


def test_documents_of_several_formats_in_one_process() -> None:
    others = pid_of()
    with Sandbox(ParseLimits()) as sandbox:
        assert sandbox.read(b"# words", "a.md").structure == "markdown"
        assert code(sandbox, b"") == "empty_document"
        assert code(sandbox, b"%PDF", "a.docx") == "corrupt_document"
        assert pid_of() == others, "small text needs none"
        latin = sandbox.read("wörter".encode("cp1252"), "x.txt")
        assert latin == Extracted("wörter", "paragraphs", pages=[], warnings=[])
        pid = pid_of()
        found = sandbox.read(b"# a\n\n" + b"x" * MAX_HARMLESS_BYTES, "x.md")
        assert (found.title, found.structure, len(found.text)) == ("a", "markdown", MAX_HARMLESS_BYTES + 5)
        cells = b'{"cells": [{"cell_type": "code", "source": "x", "outputs": [NaN]}]}'
        assert sandbox.read(cells, "x.ipynb").text == "```\nx\n```"
        assert code(sandbox, b'{"cells": []}', "x.ipynb") == "no_text"
        assert code(sandbox, b" " * 2 * MAX_HARMLESS_BYTES, "x.txt") == "empty_document"
        assert pid_of() == pid
    assert gone(pid)


def test_a_process_that_breaks_down_is_replaced(sandbox: Sandbox) -> None:
    for what, expected in (
        ("eat", "parse_memory"),
        ("abort", "parser_crashed"),
        ("raise", "parser_crashed"),
        ("raw nonsense\n", "parser_crashed"),
    ):
        say(sandbox, "nothing")
        first = pid_of(MODULE)
        assert code(sandbox, what) == expected
        assert gone(first)
    assert say(sandbox, "nothing").text == "done"
    pid = pid_of(MODULE)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert say(sandbox, "nothing").text == "done", "killed between two documents: no fault of the next"


def test_a_document_that_takes_for_ever_is_stopped() -> None:
    with Sandbox(ParseLimits(timeout_s=1), module=MODULE) as sandbox:
        say(sandbox, "nothing")
        first = pid_of(MODULE)
        assert code(sandbox, "hang") == "parse_timeout"
        assert gone(first)
        assert say(sandbox, "nothing").text == "done"


def test_an_answer_arrives_as_it_was_and_its_words_are_bounded(sandbox: Sandbox) -> None:
    warning = DocumentWarning("pages_without_text", "Page 2 has no text.", (2,))
    assert say(sandbox, answered(GOOD, "ab")) == Extracted("ab", "markdown", "A title", [0, 1, 1], [warning])
    assert say(sandbox, answered(GOOD, "a\0\r\nb\xef\xbb\xbf")).text == "a\nb"
    assert code(sandbox, answered({**GOOD, "pages": []}, " \n")) == "no_text"
    assert len(say(sandbox, answered({**GOOD, "title": "t" * 10_000}, "ab")).title or "") == 500
    with pytest.raises(DocumentFailed) as failed:
        say(sandbox, answered({"code": "odd", "message": "a\n\0b " + "x" * 10_000}, ""))
    assert failed.value.error.message.startswith("a b xxx")
    assert len(failed.value.error.message) <= 1000


BAD: dict[str, list[Any]] = {
    "pages": [[9], [-1], [1, 0], ["x"], [True], [0.0], None],
    "title": [1],
    "structure": ["html", None],
    "warnings": [
        *(None, [[]], [["code", 5, []]], [["Not a code", "message", []]], [["code", "message", [0]]]),
        *([["code", "message", [*range(1, 102)]]], [WARNING] * 101),
    ],
}


NO_ANSWER = [
    *(b"nonsense\n", b"[]\n", b"{}\n", b'{"bytes": -1}\n', b'{"bytes": 1e9}\n', b'{"bytes": 999999999999}\n'),
    *(b'{"bytes": 1}\nab', b'{"bytes": 0}\n{"bytes": 0}\n', b"x" * MAX_HEADER_BYTES),
]


def test_an_answer_that_makes_no_sense_is_refused() -> None:
    for name, values in BAD.items():
        for value in values:
            with pytest.raises(ChildFailed):
                _extracted({**GOOD, name: value}, b"ab")
    for body in (b"\xff", b"a\xed\xa0\x80"):
        with pytest.raises(ChildFailed):
            _extracted(GOOD, body)
    for answer in NO_ANSWER:
        with pytest.raises(ChildFailed):
            _whole(bytearray(answer))


def test_it_knows_no_secret_and_writes_no_file(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://:secret@nowhere")
    own = {"OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY"}  # of tests/__init__.py, which the child imports
    assert set(say(sandbox, "environment").text.split()) <= {"PATH", "LANG", "LC_CTYPE", *own}
    assert code(sandbox, f"write {tmp_path}/file") == "parser_crashed"
    assert [file.read_bytes() for file in tmp_path.iterdir()] in ([], [b""])


def test_a_process_is_replaced_after_many_documents_and_is_not_started_in_vain() -> None:
    pids = []
    with Sandbox(LIMITS, module=MODULE, max_documents=2) as sandbox:
        for _ in range(4):
            say(sandbox, "nothing")
            pids.append(pid_of(MODULE))
    assert [pid is None for pid in pids] == [False, True, False, True]
    assert pids[0] != pids[2]
    with Sandbox(ParseLimits(memory_bytes=400)) as sandbox:
        assert code(sandbox, b"%PDF-" + b"x" * 100) == "document_too_large"
        assert pid_of(MODULE) is None
    with Sandbox(LIMITS, module="tests.no_such_module") as sandbox, pytest.raises(ParserNotStarted):
        say(sandbox, "nothing")


def test_it_dies_with_its_worker() -> None:
    script = f"""
from tasks.ingestion.parsing.limits import ParseLimits
from tasks.ingestion.parsing.sandbox import Sandbox
from {MODULE} import pid_of
sandbox = Sandbox(ParseLimits(), lambda: print(pid_of({MODULE!r}), flush=True), module={MODULE!r})
sandbox.read(b"hang", "a.html")
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        pid = next(int(line) for line in worker.stdout if line.strip() != "None")
        assert psutil.pid_exists(pid)
        worker.kill()
    wait_until(lambda: gone(pid), message="the parsing process outlives its worker")
