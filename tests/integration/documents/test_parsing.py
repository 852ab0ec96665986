"""Parsing in a real process that hangs, crashes and runs out of memory, alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stack.testing import wait_until
from tasks.document_error import DocumentFailed
from tasks.documents.parsing.limits import ParseLimits
from tasks.documents.parsing.parsed_document import Parsed
from tasks.documents.parsing.parser import Parser, ParserNotStarted
from tests.document_files import docx, paragraph, pdf, shown
from tests.source_tree import CHECKOUT

MODULE = "tests.integration.documents.parsing_child"
LIMITS = ParseLimits(timeout_s=20, memory_bytes=2**28)
IMPATIENT = ParseLimits(timeout_s=1)


@pytest.fixture
def parser() -> Iterator[Parser]:
    with Parser(LIMITS, module=MODULE) as parser:
        yield parser


def say(parser: Parser, what: str) -> Parsed:
    return parser.parse(what.encode(), "a.html")


def code(parser: Parser, what: str | bytes) -> str:
    with pytest.raises(DocumentFailed) as failed:
        parser.parse(what.encode() if isinstance(what, str) else what, "a.html")
    assert "secret" not in failed.value.error.message
    return failed.value.error.code


def gone(pid: int | None) -> bool:
    return pid is not None and not psutil.pid_exists(pid)


def test_documents_of_every_type_in_one_process() -> None:
    with Parser(ParseLimits()) as parser:
        assert shown(parser.parse(pdf(["a", "b"]), "x.pdf")) == [("paragraph", "a"), ("paragraph", "b")]
        pid = parser.child_pid
        assert parser.parse(pdf(["a", "b"], title="t"), "x.pdf").pages == (0, 3)
        assert shown(parser.parse(docx(paragraph("w")), "x.docx")) == [("paragraph", "w")]
        assert parser.parse(b"<title>t</title><h2>h</h2>", "x.html").title == "t"
        assert shown(parser.parse("wörter".encode("cp1252"), "x.txt")) == [("paragraph", "wörter")]
        assert shown(parser.parse(b"# a\n\n" + b"x" * 300_000, "x.md"))[0] == ("heading1", "# a")
        assert code(parser, pdf([""])) == "no_text"
        assert parser.child_pid == pid
    assert gone(pid)


def test_small_text_needs_no_process(parser: Parser) -> None:
    assert parser.parse(b"# words", "a.md").media_type == "text/markdown"
    assert parser.child_pid is None


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("eat", "parse_memory"),
        ("abort", "parser_crashed"),
        ("leave", "parser_crashed"),
        ("raise", "parser_crashed"),
    ],
)
def test_a_process_that_breaks_down_is_replaced(parser: Parser, what: str, expected: str) -> None:
    say(parser, "nothing")
    first = parser.child_pid
    assert code(parser, what) == expected
    assert gone(first)
    assert say(parser, "nothing").text == "done"
    assert parser.child_pid != first


def test_a_document_that_takes_for_ever_is_stopped() -> None:
    with Parser(IMPATIENT, module=MODULE) as parser:
        say(parser, "nothing")
        first = parser.child_pid
        assert code(parser, "hang") == "parse_timeout"
        assert gone(first)
        assert say(parser, "nothing").text == "done"


def test_html_nested_beyond_reason_costs_no_process() -> None:
    with Parser(ParseLimits()) as parser:
        parser.parse(b"<p>fine</p>", "x.html")
        pid = parser.child_pid
        assert code(parser, b"<div>" * 100_000 + b"x") == "document_too_large"
        assert parser.child_pid == pid


def test_a_bomb_in_a_docx_leaves_the_process_alive() -> None:
    with Parser(ParseLimits()) as parser:
        parser.parse(docx(paragraph("w")), "x.docx")
        pid = parser.child_pid
        assert code(parser, docx(paragraph(" " * 30_000_000))) == "document_too_large"
        assert parser.child_pid == pid


def test_killed_in_the_middle_of_a_document() -> None:
    def shoot() -> None:
        if victim.child_pid:
            os.kill(victim.child_pid, signal.SIGTERM)

    with Parser(LIMITS, shoot, module=MODULE) as victim:
        assert code(victim, "hang") == "parser_crashed"


def test_progress_is_called_and_may_end_it() -> None:
    class Stopping(Exception):
        pass

    pids: list[int | None] = []

    def stop_the_second_time() -> None:
        if stopping.child_pid:
            pids.append(stopping.child_pid)
        if len(pids) > 1:
            raise Stopping

    with Parser(LIMITS, stop_the_second_time, module=MODULE) as stopping:
        with pytest.raises(Stopping):
            say(stopping, "hang")
        assert stopping.child_pid is None
        assert gone(pids[0])


def test_what_a_library_prints_does_no_harm(parser: Parser) -> None:
    assert say(parser, "print").text == "done"
    assert say(parser, "nothing").text == "done"


def test_it_knows_no_secret_and_writes_no_file(parser: Parser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDQ_REDIS_URL", "redis://:secret@nowhere")
    own = {"OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY"}  # of tests/__init__.py, which the child imports
    assert set(say(parser, "environment").text.split()) <= {"PATH", "LANG", "LC_CTYPE", *own}
    assert code(parser, f"write {tmp_path}/file") == "parser_crashed"
    assert [file.read_bytes() for file in tmp_path.iterdir()] in ([], [b""])


def test_a_process_is_replaced_after_many_documents() -> None:
    pids = []
    with Parser(LIMITS, module=MODULE, max_documents=2) as parser:
        for _ in range(4):
            say(parser, "nothing")
            pids.append(parser.child_pid)
    assert [pid is None for pid in pids] == [False, True, False, True]
    assert pids[0] != pids[2]


def test_a_file_that_cannot_fit_is_not_read() -> None:
    with Parser(ParseLimits(memory_bytes=400)) as parser:
        assert code(parser, b"%PDF-" + b"x" * 100) == "document_too_large"
        assert parser.child_pid is None


def test_a_machine_that_starts_no_process_is_no_fault_of_a_document() -> None:
    with Parser(LIMITS, module="tests.no_such_module") as parser, pytest.raises(ParserNotStarted):
        say(parser, "nothing")


def test_it_dies_with_its_worker() -> None:
    script = f"""
from tasks.documents.parsing.limits import ParseLimits
from tasks.documents.parsing.parser import Parser
parser = Parser(ParseLimits(), lambda: print(parser.child_pid, flush=True), module={MODULE!r})
parser.parse(b"hang", "a.html")
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        pid = next(int(line) for line in worker.stdout if line.strip() != "None")
        assert psutil.pid_exists(pid)
        worker.kill()
    wait_until(lambda: gone(pid), message="the parsing process outlives its worker")
