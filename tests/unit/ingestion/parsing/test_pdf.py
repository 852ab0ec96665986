"""PDF: pages, what lies on them, and what cannot be read of them."""

from collections.abc import Sequence

import pytest

from tasks.document_error import DocumentError, DocumentFailed
from tasks.ingestion.parsing.pdf import read_pdf
from tests.document_files import FIRST, HELVETICA, drawn_pdf, lines_at

IMAGE = "q 600 0 0 700 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \x7f EI Q "
WORDS = "BT /F1 12 Tf 72 700 Td (Refunds are paid within three days.) Tj ET "
OUTLINES = "".join(f"{x} 0 m {x + 5} 9 l {x + 9} 0 l h f " for x in range(0, 600, 10))
BACKGROUND = "1 1 1 rg 0 0 612 792 re f "
UNMAPPED = "BT /F2 12 Tf 72 600 Td <{}> Tj ET "
GARBAGE = UNMAPPED.format("".join(f"{glyph:04x}" for glyph in range(36, 80)))
SHELL = (
    "BT /F1 9 Tf 14 TL 72 700 Td (Please wait... ) Tj T* (If this message is not eventually replaced with the proper "
    "contents) Tj T* (of the document, your PDF viewer may not be able to display this type of document.) Tj ET "
)


def field(kind: str, name: str, more: str) -> str:
    return f"<< /Type /Annot /Subtype /Widget /Rect [9 9 99 29] /FT /{kind} /T ({name}) {more} >>"


def note(kind: str, contents: str, more: str = "") -> str:
    return f"<< /Type /Annot /Subtype /{kind} /Rect [9 9 99 29] /Contents ({contents}) {more} >>"


def error(data: bytes) -> DocumentError:
    with pytest.raises(DocumentFailed) as failed:
        read_pdf(data)
    return failed.value.error


def warned(data: bytes) -> list[tuple[str, tuple[int, ...]]]:
    return [(warning.code, warning.pages) for warning in read_pdf(data).warnings]


def test_pages_begin_where_they_begin() -> None:
    read = read_pdf(drawn_pdf([lines_at("first page", "of three"), "", lines_at("third")]))
    assert read.text == "first page\nof three\n\nthird"
    assert list(read.pages) == [0, len("first page\nof three"), read.text.index("third")]
    assert (read.structure, read.title, read.warnings) == ("paragraphs", "A title", [])


@pytest.mark.parametrize(
    ("drawn", "text"),
    [
        ("BT /F1 12 Tf 300 520 Td (right) Tj ET BT /F1 12 Tf 60 500 Td (left) Tj ET ", "right\nleft"),
        ("BT /F1 12 Tf 14 TL 72 720 Td (an exam-) Tj T* (ple) Tj ET ", "an example"),
        ("BT 3 Tr /F1 12 Tf 72 720 Td (a layer of OCR) Tj ET " + IMAGE, "a layer of OCR"),
        ("BT /F3 12 Tf 72 720 Td (BA) Tj ET ", "fi\U0001f600"),
        ("BT /F1 12 Tf 72 720 Td (caf\\351 \\200 5) Tj ET ", "café € 5"),
    ],
)
def test_what_a_page_draws(drawn: str, text: str) -> None:
    encoded = HELVETICA.replace(">>", "/Encoding /WinAnsiEncoding >>").encode()
    assert read_pdf(drawn_pdf([drawn]).replace(HELVETICA.encode(), encoded)).text == text


def test_values_of_fields_follow_the_page() -> None:
    fields = [
        field("Tx", "name", "/V (Ada Example) /TU (Full name)"),
        field("Tx", "lines", "/V (one\\rtwo) /Ff 4096"),
        field("Tx", "comb", "/V (4711) /MaxLen 4 /Ff 16777216"),
        field("Tx", "empty", ""),
        field("Tx", "pin", "/V (secret) /Ff 8192"),
        field("Tx", "hidden", "/V (unseen) /F 2"),
        field("Tx", "sinograms", "/V <FEFF4E2D6587>"),
        field("Btn", "ok", "/V /Yes /AS /Yes /AP << /N << /Yes 8 0 R /Off 8 0 R >> >>"),
        field("Btn", "not", "/V /Off /AS /Off /AP << /N << /Yes 8 0 R /Off 8 0 R >> >>"),
        field("Btn", "push", "/Ff 65536 /MK << /CA (Send) >>"),
        field("Ch", "land", "/Ff 131072 /V (no) /Opt [[(de) (Germany)] [(no) (Norway)]]"),
        field("Ch", "free", "/Ff 393216 /V (typed) /Opt [(a) (b)]"),
        field("Ch", "many", "/Ff 2097152 /V [(a) (c)] /I [0 2] /Opt [(a) (b) (c)]"),
    ]
    assert read_pdf(drawn_pdf([WORDS], on_first=fields, form="")).text.split("\n\n") == [
        "Refunds are paid within three days.",
        (
            "Full name: Ada Example\nlines: one\ntwo\ncomb: 4711\nsinograms: 中文\nok: Yes\nland: Norway\nfree: typed\n"
            "many: a, c"
        ),
    ]


def test_comments_follow_the_page_once_and_without_links() -> None:
    notes = [
        note("FreeText", "approved by Grace"),
        note("FreeText", "approved by Grace"),
        note("Text", "why?"),
        note("Highlight", "important"),
        note("Stamp", "FINAL"),
        note("Link", "junk"),
        note("Popup", "why? again"),
        note("Text", "unseen", "/F 2"),
        note("Text", " "),
    ]
    assert (
        read_pdf(drawn_pdf([WORDS], on_first=notes)).text.split("\n\n")[1]
        == "approved by Grace\nwhy?\nimportant\nFINAL"
    )


def test_pages_without_text_are_counted() -> None:
    data = drawn_pdf([WORDS, IMAGE, WORDS, OUTLINES, "", BACKGROUND])
    assert warned(data) == [("pages_without_text", (2, 4))]
    assert read_pdf(data).warnings[0].message.startswith("2 of 6 pages")


def stamped(number: int) -> str:
    return IMAGE + lines_at(f"ACME{number:06d} scanned with a phone")


@pytest.mark.parametrize(
    "pages",
    [
        [IMAGE],
        [OUTLINES],
        [WORDS, *[IMAGE] * 9],
        [WORDS, "", IMAGE, IMAGE],
        [WORDS, *(stamped(number) for number in range(5))],
        [IMAGE + lines_at("- 7 -")],
        ["", ""],
    ],
)
def test_mostly_pictures_are_refused_and_told_of_ocr(pages: Sequence[str]) -> None:
    refusal = error(drawn_pdf(pages))
    assert refusal.code == "no_text"
    assert "OCR" in refusal.message
    assert f"of {len(pages)} pages" in refusal.message


def test_unmapped_characters_are_left_out_and_warned() -> None:
    data = drawn_pdf([WORDS * 3, WORDS + GARBAGE])
    read = read_pdf(data)
    assert warned(data) == [("unmapped_characters", (2,))]
    assert read.text.endswith("days.\n\ufffd")
    assert read.text.count("\ufffd") == 1


@pytest.mark.parametrize(
    "pages",
    [[GARBAGE], ["BT /F1 12 Tf 72 700 Td (\\001\\001) Tj ET "], [WORDS, GARBAGE, GARBAGE], [GARBAGE + IMAGE, IMAGE]],
)
def test_mostly_unmapped_is_refused(pages: Sequence[str]) -> None:
    assert error(drawn_pdf(pages)).code == "no_text"
    assert "Unicode" in error(drawn_pdf(pages)).message


XFA = "/XFA 8 0 R"
VALUE = field("Tx", "name", "/V (Ada Example)")
RENDERED = "/NeedsRendering true"


@pytest.mark.parametrize(
    ("drawn", "catalog"), [(SHELL, RENDERED), (SHELL, ""), (lines_at("Bitte warten ..."), RENDERED)]
)
def test_an_xfa_form_that_is_a_shell_is_refused(drawn: str, catalog: str) -> None:
    data = drawn_pdf([drawn], form="/XFA [(datasets) 7 0 R]", catalog=catalog)
    assert error(data).code == "xfa_form"
    assert "XFA" in error(data).message


@pytest.mark.parametrize(
    ("drawn", "fields", "catalog", "text"),
    [
        (SHELL, [VALUE], RENDERED, "name: Ada Example"),
        (WORDS, [VALUE], "", "Refunds are paid within three days.\n\nname: Ada Example"),
        (WORDS, [], "", "Refunds are paid within three days."),
    ],
)
def test_an_xfa_form_with_text_is_read_and_warned(drawn: str, fields: list[str], catalog: str, text: str) -> None:
    data = drawn_pdf([drawn], on_first=fields, form="/XFA [(datasets) 7 0 R]", catalog=catalog)
    assert read_pdf(data).text == text
    assert warned(data) == [("xfa_form", ())]


FILE = "<< /Type /Filespec /F (a.txt) /EF << /F 7 0 R >> >>"


def test_files_within_it_are_left_out_and_said() -> None:
    portfolio = f"/Names << /EmbeddedFiles << /Names [(a) {FILE} (b) {FILE}] >> >> /Collection << >>"
    data = drawn_pdf([WORDS], catalog=portfolio)
    assert warned(data) == [("attachments_left_out", ())]
    assert read_pdf(data).warnings[0].message.startswith("2 files")
    assert "a.txt" not in read_pdf(data).warnings[0].message


def test_damage() -> None:
    assert error(b"%PDF-1.4\n" + b"garbage " * 100).code == "corrupt_document"
    assert error(drawn_pdf([WORDS])[:200]).code == "corrupt_document"
    circle = drawn_pdf([WORDS]).replace(f"/Kids [{FIRST} 0 R]".encode(), b"/Kids [2 0 R]")
    assert error(circle).code == "corrupt_document"


def test_a_password() -> None:
    owner = "00" * 32
    encryption = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{owner}> /U <{owner}> /P -4 >> /ID [<00> <00>] /Info"
    assert error(drawn_pdf([WORDS]).replace(b"/Info", encryption.encode())).code == "password_protected"
