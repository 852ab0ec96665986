"""Answers of the parsing process are checked, as it may have been taken over."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.docx import parse_docx
from tasks.documents.parsing.frames import (
    LENGTHS,
    ChildFailed,
    frame_from_parsed,
    header_from_bytes,
    lengths,
    parsed_from_frame,
)
from tasks.documents.parsing.html import parse_html
from tasks.documents.parsing.parsed_document import Block, Parsed
from tasks.documents.parsing.pdf import parse_pdf
from tasks.documents.parsing.text_encoding import decode
from tests.document_files import docx, paragraph, pdf

PARSED = Parsed("ä b", (Block("heading", 0, 1, 2), Block("code", 2, 3)), (0, 3), "t", "text/html")
GOOD = {"type": "text/html", "title": "t", "blocks": [0, 0, 1, 2, 4, 2, 3, 0], "pages": [0, 3]}


def test_an_answer_arrives_as_it_was() -> None:
    start, body = frame_from_parsed(PARSED, spent=False)
    header_bytes, body_bytes = lengths(start[: LENGTHS.size])
    header = start[LENGTHS.size :]
    assert (len(header), len(body)) == (header_bytes, body_bytes)
    assert parsed_from_frame(header_from_bytes(header), body) == PARSED


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": [0, 0, 1]},
        {"blocks": [9, 0, 1, 0]},
        {"blocks": [0, 0, 9, 0]},
        {"blocks": [0, 2, 1, 0]},
        {"blocks": [0, 1, 3, 0, 0, 0, 1, 0]},
        {"blocks": ["a", "b", "c", "d"]},
        {"blocks": None},
        {"pages": [4]},
        {"pages": ["x"]},
        {"title": 1},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    assert parsed_from_frame(GOOD, b"a b").text == "a b"
    with pytest.raises(ChildFailed):
        parsed_from_frame({**GOOD, **change}, b"a b")


def test_other_nonsense() -> None:
    for header in (b"", b"[]", b"{"):
        with pytest.raises(ChildFailed):
            header_from_bytes(header)
    with pytest.raises(ChildFailed):
        lengths(LENGTHS.pack(2**32 - 1, 0))
    with pytest.raises(ChildFailed):
        lengths(LENGTHS.pack(0, 2**60))
    with pytest.raises(ChildFailed):
        parsed_from_frame(GOOD, b"\xff")


@pytest.mark.parametrize(
    ("library", "parse", "data"),
    [
        ("selectolax.lexbor", parse_html, b"<p>x"),
        ("pypdfium2", parse_pdf, pdf(["x"])),
        ("lxml", parse_docx, docx(paragraph("x"))),
        ("charset_normalizer", decode, "wörter".encode("cp1252")),
    ],
)
def test_a_missing_library_names_its_install_command(
    library: str, parse: Callable[[bytes], object], data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DocumentFailed) as failed:
        parse(data)
    assert failed.value.error.code == "missing_parser"
    assert "pip install 'embedq[documents]'" in failed.value.error.message
