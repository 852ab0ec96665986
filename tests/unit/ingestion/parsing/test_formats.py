"""Formats are told by bytes and name, and the bytes win."""

import gzip
import hashlib
import struct

import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.formats import (
    DOCX,
    EPUB,
    FORMATS,
    HTML,
    MAIL,
    MARKDOWN,
    MBOX,
    MSG,
    ODT,
    PDF,
    PPTX,
    RST,
    RTF,
    SPREADSHEET,
    TEXT,
    Format,
    sniff,
)
from tests.document_files import archive, docx, pdf

TYPES = "[Content_Types].xml"
HEADERS = b"Subject: First mail\nFrom: ada@example.org\nMIME-Version: 1.0\n\nbody"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
LOGIN = b"\n<!DOCTYPE html><html><body>Please log in"
PAGE = b'<html><head><meta charset="utf-8"></head><body>x</body></html>'
RTF_BYTES = b"{\\rtf1 words}"


def stored(kind: str) -> bytes:
    """As EPUB and OpenDocument begin: an entry that is stored, and its content right behind its name."""
    data = kind.encode()
    return struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, len(data), len(data), 8, 0) + b"mimetype" + data


def ole(*streams: str, text: str = "") -> bytes:
    """The directory of a compound file, after text of somebody."""
    entries = b"".join(name.encode("utf-16-le").ljust(128, b"\0") for name in ("Root Entry", *streams))
    return (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
        + bytes(504)
        + (b"\0" + text.encode("utf-16-le")).ljust(512, b"\0")
        + entries
    )


def code(data: bytes, name: str) -> tuple[str, str]:
    with pytest.raises(DocumentFailed) as failed:
        sniff(data, name)
    assert failed.value.error.stage == "parsing"
    return failed.value.error.code, failed.value.error.message


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"words", "a.txt", TEXT),
        (b"a,b\n1,2", "a.csv", TEXT),
        (b"# words", "a.md", MARKDOWN),
        (b"<svg>a picture</svg>\n# Title", "README.md", MARKDOWN),
        (b"Title\n=====", "a.RST", RST),
        (b"<p>words", "a.HTM", HTML),
        (LOGIN, "page", HTML),
        (b"<!-- saved from a site -->\n<HTML>", "a.txt", HTML),
        (b"\xef\xbb\xbf<html>", "a.txt", HTML),
        ("wörter".encode("utf-16"), "a.txt", TEXT),
        ("words and more of them".encode("utf-16-le"), "a.txt", TEXT),
        ("日本語".encode("shift_jis"), "a.txt", TEXT),
        (pdf(["x"]), "a.txt", PDF),
        (b"junk of a mail server\r\n" + pdf(["x"]), "a.PDF", PDF),
        (b"\0\1junk\r\n" + pdf(["x"]), "", PDF),
        (b"# PDF headers\n\nA file begins with %PDF-1.7.", "notes.md", MARKDOWN),
        (b"Subject: %PDF-1.7\n\nIt begins with %PDF-1.4.", "m.eml", MAIL),
        (b"It begins with %PDF-1.4.", "README", TEXT),
        (b"<html>It begins with %PDF-1.4.", "a.html", HTML),
    ],
)
def test_text_and_pdf(data: bytes, name: str, expected: Format) -> None:
    assert sniff(data, name) is expected


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (HEADERS, "m.eml", MAIL),
        (b"\xef\xbb\xbf" + HEADERS, "bom.eml", MAIL),
        (HEADERS, "page.mht", MAIL),
        (HEADERS, "saved.doc", MAIL),
        (HEADERS, "saved.html", MAIL),
        (HEADERS, "1700000000.M1P2.host:2,S", MAIL),
        (b"From ada@example.org Mon Nov  3 10:00:00 2025\n" + HEADERS, "archive.mbox", MBOX),
        (b"From ada@example.org Mon Nov  3 10:00:00 2025\n" + HEADERS, "line.eml", MBOX),
        (HEADERS, "notes.md", MARKDOWN),
        (HEADERS, "pep.rst", RST),
        (PAGE, "jira.doc", HTML),
        (PAGE, "export.xls", HTML),
        (RTF_BYTES, "a.rtf", RTF),
        (b"\n" + RTF_BYTES, "a.txt", RTF),
    ],
)
def test_mail_and_what_is_saved_as_doc(data: bytes, name: str, expected: Format) -> None:
    assert sniff(data, name) is expected


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (docx(""), "a.zip", DOCX),
        (archive({TYPES: "", "word\\document.xml": ""}), "a.docm", DOCX),
        (archive({TYPES: "", "ppt/presentation.xml": ""}), "a", PPTX),
        (archive({TYPES: "", "ppt/embeddings/a.xlsx": "[Content_Types].xml xl/ word/", "x": ""}), "a.ppsx", PPTX),
        (archive({TYPES: "", "xl/workbook.xml": ""}), "a.xlsx", SPREADSHEET),
        (archive({TYPES: "", "xl/workbook.bin": ""}), "a.xlsb", SPREADSHEET),
        (docx("") + b"behind it", "a.docx", DOCX),
        (docx("")[:100], "cut-off.docx", DOCX),
        (stored("application/epub+zip"), "a.bin", EPUB),
        (archive({"META-INF/container.xml": "", "mimetype": "application/epub+zip"}), "a.epub", EPUB),
        (stored("application/vnd.oasis.opendocument.spreadsheet"), "a.ods", SPREADSHEET),
        (archive({"content.xml": "", "mimetype": "application/vnd.oasis.opendocument.text"}), "a.odt", ODT),
        (ole("Workbook"), "a.xls", SPREADSHEET),
        (ole("Workbook"), "named-wrongly.xlsx", SPREADSHEET),
        (ole("Workbook", "MBD0001", "WordDocument"), "embeds-a-document.xls", SPREADSHEET),
        (ole("__substg1.0_0037001F", "WordDocument"), "a", MSG),
    ],
)
def test_archives_and_compound_files(data: bytes, name: str, expected: Format) -> None:
    assert sniff(data, name) is expected


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (LFS_POINTER, "a pointer of Git LFS"),
        (b"\xef\xbb\xbf" + LFS_POINTER, "a pointer of Git LFS"),
        (LOGIN, "an HTML page"),
        (HEADERS, "an e-mail"),
        (b"not found", "text"),
        (b'{"error": "unauthorized"}', "text"),
        ("nicht da: \xfcber".encode("utf-16"), "text"),
    ],
)
def test_a_name_of_a_binary_format_is_held_to_it(data: bytes, what: str) -> None:
    for ending in ("pdf", "PDF", "docx", "pptx", "xlsx", "ods", "odt", "rtf", "epub", "msg", "png", "zip"):
        failed, message = code(data, f"a.{ending}")
        assert failed == "corrupt_document"
        assert f"The file is {what}, and its name says {ending.upper()}" in message


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.doc", "a.xls", "a.html", "a.eml", "a.ipynb", "a.csv", "LICENSE"])
def test_a_pointer_is_no_document_under_any_name(name: str) -> None:
    assert code(LFS_POINTER, name)[0] == "corrupt_document"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (docx(""), "a.pdf"),
        (pdf(["x"]), "a.docx"),
        (pdf(["x"]), "a.xlsx"),
        (RTF_BYTES, "a.docx"),
        (ole("Workbook"), "a.msg"),
        (archive({TYPES: "", "xl/workbook.xml": ""}), "a.docx"),
        (archive({"notes.txt": "words"}), "a.docx"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "a.pdf"),
        (gzip.compress(b"words" * 100, mtime=0), "a.docx"),
    ],
)
def test_one_binary_format_under_the_name_of_another_is_not_read(data: bytes, name: str) -> None:
    failed, message = code(data, name)
    assert failed == "corrupt_document"
    assert f"its name says {name[2:].upper()}" in message


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (archive({"notes.txt": "words"}), "ZIP"),
        (archive({"a.docx": docx(""), "word/x": ""}), "ZIP"),
        (stored("application/vnd.oasis.opendocument.presentation"), "OpenDocument"),
        (ole("WordDocument", "1Table"), "Word document of 97 to 2003"),
        (ole("PowerPoint Document"), "save it as PPTX"),
        (ole("Other"), "OLE"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "PNG"),
        (b"\xff\xd8\xff\xe0\0\0", "JPEG"),
        (gzip.compress(b"words" * 100, mtime=0), "gzip"),  # a time in it would be another test in each process
        (b"PAR1\0\0\0\0", "Parquet"),
        (b"<svg xmlns=''>", "SVG"),
    ],
)
def test_a_known_type_that_is_not_read_is_named(data: bytes, what: str) -> None:
    for name in ("a.doc", "a"):
        failed, message = code(data, name)
        assert failed == "unsupported_type"
        assert what in message
        assert "Supported are plain text, Markdown, reStructuredText, HTML, PDF" in message


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (hashlib.shake_128(b"1").digest(1024), "a.txt", "binary_file"),
        (bytes(64), "a.txt", "binary_file"),
        (b"\x01\x02\x03\x04", "a.txt", "binary_file"),
        (bytes(64), "a.pdf", "corrupt_document"),
        (bytes(64), "a.xls", "corrupt_document"),
        (ole("EncryptionInfo", "EncryptedPackage"), "a.docx", "password_protected"),
        (ole("EncryptedPackage"), "a.xlsx", "password_protected"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, name: str, expected: str) -> None:
    assert code(data, name)[0] == expected


@pytest.mark.parametrize("tail", [b"", b"PK\5\6", b"PK\5\6" + bytes(18), b"PK\5\6" + b"\xff" * 18])
@pytest.mark.parametrize("middle", [b"", b"PK\1\2" * 1000, b"PK\1\2" + bytes(42), b"PK\1\2" + b"\xff" * 42])
def test_a_directory_that_makes_no_sense_is_damaged(tail: bytes, middle: bytes) -> None:
    try:
        assert sniff(b"PK\3\4" + middle + tail, "a.docx") is DOCX  # whose reader says so
    except DocumentFailed as failed:
        assert failed.error.code == "corrupt_document"  # noqa: PT017 - either is right


def test_no_two_formats_claim_the_same_type_or_ending() -> None:
    media_types = [known.media_type for known in FORMATS]
    endings = [ending for known in FORMATS for ending in known.endings]
    assert len(set(media_types)) == len(media_types)
    assert len(set(endings)) == len(endings)
