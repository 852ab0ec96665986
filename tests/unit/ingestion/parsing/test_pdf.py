"""PDF: pages, what lies on them, and what cannot be read of them."""

import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.pdf import read_pdf
from tests.document_files import FIRST, HELVETICA, drawn_pdf, lines_at
from tests.unit.ingestion.parsing.files import outcome

IMAGE = "q 600 0 0 700 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G ID \x7f EI Q "
WORDS = "BT /F1 12 Tf 72 700 Td (Refunds are paid within three days.) Tj ET "
OUTLINES = "".join(f"{x} 0 m {x + 5} 9 l {x + 9} 0 l h f " for x in range(0, 600, 10))
BACKGROUND = "1 1 1 rg 0 0 612 792 re f "
GARBAGE = f"BT /F2 12 Tf 72 600 Td <{''.join(f'{glyph:04x}' for glyph in range(36, 80))}> Tj ET "
STAMPED = [IMAGE + lines_at(f"ACME{number:06d} scanned with a phone") for number in range(5)]
SHELL = (
    "BT /F1 9 Tf 14 TL 72 700 Td (Please wait... ) Tj T* (If this message is not eventually replaced with the proper "
    "contents) Tj T* (of the document, your PDF viewer may not be able to display this type of document.) Tj ET "
)


def field(kind: str, name: str, more: str) -> str:
    return f"<< /Type /Annot /Subtype /Widget /Rect [9 9 99 29] /FT /{kind} /T ({name}) {more} >>"


def note(kind: str, contents: str, more: str = "") -> str:
    return f"<< /Type /Annot /Subtype /{kind} /Rect [9 9 99 29] /Contents ({contents}) {more} >>"


def warned(data: bytes) -> list[tuple[str, tuple[int, ...], str]]:
    return [(each.code, each.pages, each.message[:7]) for each in read_pdf(data).warnings]


def test_pages_begin_where_they_begin_and_say_what_they_draw() -> None:
    read = read_pdf(drawn_pdf([lines_at("first page", "of three"), "", lines_at("third")]))
    assert read.text == "first page\nof three\n\nthird"
    assert list(read.pages) == [0, len("first page\nof three"), read.text.index("third")]
    assert (read.structure, read.title, read.warnings) == ("paragraphs", "A title", [])
    encoded = HELVETICA.replace(">>", "/Encoding /WinAnsiEncoding >>").encode()
    for drawn, text in (
        ("BT /F1 12 Tf 14 TL 72 720 Td (an exam-) Tj T* (ple) Tj ET ", "an example"),
        ("BT 3 Tr /F1 12 Tf 72 720 Td (a layer of OCR) Tj ET " + IMAGE, "a layer of OCR"),
        ("BT /F3 12 Tf 72 720 Td (BA) Tj ET ", "fi\U0001f600"),
        ("BT /F1 12 Tf 72 720 Td (caf\\351 \\200 5) Tj ET ", "café € 5"),
    ):
        assert read_pdf(drawn_pdf([drawn]).replace(HELVETICA.encode(), encoded)).text == text


def test_values_of_fields_and_comments_follow_the_page_once() -> None:
    fields = [
        field("Tx", "name", "/V (Ada Example) /TU (Full name)"),
        field("Tx", "comb", "/V (4711) /MaxLen 4 /Ff 16777216"),
        field("Tx", "pin", "/V (secret) /Ff 8192"),
        field("Tx", "sinograms", "/V <FEFF4E2D6587>"),
        field("Btn", "ok", "/V /Yes /AS /Yes /AP << /N << /Yes 8 0 R /Off 8 0 R >> >>"),
        field("Ch", "land", "/Ff 131072 /V (no) /Opt [[(de) (Germany)] [(no) (Norway)]]"),
        field("Ch", "free", "/Ff 393216 /V (typed) /Opt [(a) (b)]"),
        field("Ch", "many", "/Ff 2097152 /V [(a) (c)] /I [0 2] /Opt [(a) (b) (c)]"),
    ]
    assert read_pdf(drawn_pdf([WORDS], on_first=fields, form="")).text == (
        "Refunds are paid within three days.\n\n"
        "Full name: Ada Example\ncomb: 4711\nsinograms: 中文\nok: Yes\nland: Norway\nfree: typed\nmany: a, c"
    )
    notes = [
        *(note("FreeText", "approved by Grace"), note("FreeText", "approved by Grace"), note("Text", "why?")),
        *(note("Highlight", "important"), note("Stamp", "FINAL"), note("Link", "junk"), note("Popup", "why? again")),
        *(note("Text", "unseen", "/F 2"), note("Text", " ")),
    ]
    found = read_pdf(drawn_pdf([WORDS], on_first=notes)).text
    assert found.split("\n\n")[1] == "approved by Grace\nwhy?\nimportant\nFINAL"


FILE = "<< /Type /Filespec /F (a.txt) /EF << /F 7 0 R >> >>"
PORTFOLIO = f"/Names << /EmbeddedFiles << /Names [(a) {FILE} (b) {FILE}] >> >> /Collection << >>"


def test_what_cannot_be_read_is_said() -> None:
    pages = drawn_pdf([WORDS, IMAGE, WORDS, OUTLINES, "", BACKGROUND])
    assert warned(pages) == [("pages_without_text", (2, 4), "2 of 6 ")]
    unmapped = drawn_pdf([WORDS * 3, WORDS + GARBAGE])
    assert [each[:2] for each in warned(unmapped)] == [("unmapped_characters", (2,))]
    assert read_pdf(unmapped).text.endswith("days.\n\ufffd")
    assert read_pdf(unmapped).text.count("\ufffd") == 1
    assert warned(drawn_pdf([WORDS], catalog=PORTFOLIO)) == [("attachments_left_out", (), "2 files")]


@pytest.mark.parametrize(
    ("pages", "remedy"),
    [
        ([OUTLINES], "OCR"),
        ([WORDS, "", IMAGE, IMAGE], "OCR"),
        ([WORDS, *STAMPED], "OCR"),
        (["BT /F1 12 Tf 72 700 Td (\\001\\001) Tj ET "], "Unicode"),
        ([WORDS, GARBAGE, GARBAGE], "Unicode"),
        ([GARBAGE + IMAGE, IMAGE], "Unicode"),
    ],
)
def test_mostly_pictures_or_unmapped_is_refused(pages: list[str], remedy: str) -> None:
    with pytest.raises(DocumentFailed, match="no_text") as failed:
        read_pdf(drawn_pdf(pages))
    assert remedy in failed.value.error.message
    assert remedy == "Unicode" or f"of {len(pages)} pages" in failed.value.error.message


VALUE = field("Tx", "name", "/V (Ada Example)")
RENDERED = "/NeedsRendering true"


def test_an_xfa_form_is_refused_or_read_and_warned() -> None:
    for drawn, fields, catalog, text in (
        (SHELL, [], RENDERED, "<xfa_form>"),
        (lines_at("Bitte warten ..."), [], RENDERED, "<xfa_form>"),
        (SHELL, [VALUE], RENDERED, "name: Ada Example"),
        (WORDS, [], "", "Refunds are paid within three days."),
    ):
        data = drawn_pdf([drawn], on_first=fields, form="/XFA [(datasets) 7 0 R]", catalog=catalog)
        assert outcome(read_pdf, data) == text
        assert text == "<xfa_form>" or [each[0] for each in warned(data)] == ["xfa_form"]


GOOD = drawn_pdf([WORDS])
ZEROS = "00" * 32
ENCRYPTION = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{ZEROS}> /U <{ZEROS}> /P -4 >> /ID [<00> <00>] /Info"


def test_damage_and_passwords() -> None:
    circle = GOOD.replace(f"/Kids [{FIRST} 0 R]".encode(), b"/Kids [2 0 R]")
    for data in (b"%PDF-1.4\n" + b"garbage " * 100, GOOD[:200], circle):
        assert outcome(read_pdf, data) == "<corrupt_document>"
    assert outcome(read_pdf, GOOD.replace(b"/Info", ENCRYPTION.encode())) == "<password_protected>"
