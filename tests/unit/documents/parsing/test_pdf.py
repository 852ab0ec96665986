"""PDF: pages, and the ways in which one cannot be read."""

import pytest

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.pdf import parse_pdf
from tests.document_files import pdf, shown


def code(data: bytes) -> str:
    with pytest.raises(DocumentFailed) as failed:
        parse_pdf(data)
    return failed.value.error.code


def test_pages_begin_where_they_begin() -> None:
    parsed = parse_pdf(pdf(["first page\nof three", "", "third"], title="A title"))
    assert shown(parsed) == [("paragraph", "first page\nof three"), ("paragraph", "third")]
    assert parsed.pages == (0, parsed.text.index("third"), parsed.text.index("third"))
    assert parsed.title == "A title"


def test_what_stands_apart_on_the_page_stays_apart() -> None:
    def at(x: int, y: int, text: str) -> str:
        return f"BT /F1 12 Tf {x} {y} Td ({text}) Tj ET "

    ticks = "".join(at(100 + 40 * n, 100, str(2 * n)) for n in range(1, 5))
    ticks += "".join(at(60, 130 + 40 * n, str(2 * n)) for n in range(1, 5))
    lines = at(100, 500, "than implicit.") + at(300, 520, "Simple") + at(300, 506, "last")
    first, second = parse_pdf(pdf([ticks, lines], drawn=True)).text.split("\n\n")
    assert first.startswith("2\n4\n6\n8\n")
    assert second == "than implicit.\nSimple\nlast"


def test_blank_pages_at_the_end_count() -> None:
    parsed = parse_pdf(pdf(["first", "", ""]))
    assert parsed.pages == (0, 5, 5)


def test_a_pdf_of_pictures_says_what_to_do() -> None:
    with pytest.raises(DocumentFailed, match="no_text") as failed:
        parse_pdf(pdf(["", ""]))
    assert "OCR" in failed.value.error.message


def test_a_password() -> None:
    assert code(pdf(["secret"], password="open sesame")) == "password_protected"


def test_damage() -> None:
    assert code(b"%PDF-1.4\n" + b"garbage " * 100) == "corrupt_document"
    assert code(pdf(["words"])[:200]) == "corrupt_document"


def test_pages_that_lead_in_a_circle_end() -> None:
    looping = pdf(["words"]).replace(b"/Kids [5 0 R]", b"/Kids [2 0 R]")
    assert code(looping) in {"corrupt_document", "no_text"}
