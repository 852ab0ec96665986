"""Formats are told by bytes and name, and the bytes win."""

import gzip
import hashlib
import struct

import pytest

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.formats import FORMATS, sniff
from tests.document_files import archive, docx, pdf

TYPES = "[Content_Types].xml"
HEADERS = b"Subject: First mail\nFrom: ada@example.org\nMIME-Version: 1.0\n\nbody"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"
LOGIN = b"\n<!DOCTYPE html><html><body>Please log in"
PAGE = b'<html><head><meta charset="utf-8"></head><body>x</body></html>'
RTF = b"{\\rtf1 words}"
FROM = b"From ada@example.org Mon Nov  3 10:00:00 2025\n"


def stored(kind: str) -> bytes:
    """As EPUB and OpenDocument begin: an entry that is stored, and its content right behind its name."""
    data = f"application/{kind}".encode()
    return struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, len(data), len(data), 8, 0) + b"mimetype" + data


def ole(*streams: str) -> bytes:
    entries = b"".join(name.encode("utf-16-le").ljust(128, b"\0") for name in ("Root Entry", *streams))
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + entries


def told(data: bytes, name: str) -> str:
    """The first ending of the format, or why there is none: code and message."""
    try:
        return sniff(data, name).endings[0]
    except DocumentFailed as failed:
        return f"{failed.error.code}: {failed.error.message}"


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (LOGIN, "page", ".html"),
        (b"<!-- saved from a site -->\n<HTML>", "a.txt", ".html"),
        ("wörter".encode("utf-16"), "a.txt", ".txt"),
        (pdf(["x"]), "a.txt", ".pdf"),
        (b"junk of a mail server\r\n" + pdf(["x"]), "a.PDF", ".pdf"),
        (b"\0\1junk\r\n" + pdf(["x"]), "", ".pdf"),
        (b"# PDF headers\n\nA file begins with %PDF-1.7.", "notes.md", ".md"),
        (HEADERS, "1700000000.M1P2.host:2,S", ".eml"),
        (FROM + HEADERS, "line.eml", ".mbox"),
        (b"\n" + RTF, "a.txt", ".rtf"),
        (docx(""), "a.zip", ".docx"),
        (archive({TYPES: "", "word\\document.xml": ""}), "a.docm", ".docx"),
        (archive({TYPES: "", "ppt/embeddings/a.xlsx": "[Content_Types].xml xl/ word/", "x": ""}), "a.ppsx", ".pptx"),
        (docx("")[:100], "cut-off.docx", ".docx"),
        (archive({"META-INF/container.xml": "", "mimetype": "application/epub+zip"}), "a.epub", ".epub"),
        (stored("vnd.oasis.opendocument.spreadsheet"), "a.ods", ".xlsx"),
        (archive({"content.xml": "", "mimetype": "application/vnd.oasis.opendocument.text"}), "a.odt", ".odt"),
        (ole("Workbook", "MBD0001", "WordDocument"), "embeds-a-document.xls", ".xlsx"),
        (ole("__substg1.0_0037001F", "WordDocument"), "a", ".msg"),
    ],
)
def test_what_is_read(data: bytes, name: str, expected: str) -> None:
    assert told(data, name) == expected


def test_a_name_of_a_binary_format_is_held_to_it() -> None:
    for data, what in (
        (b"\xef\xbb\xbf" + POINTER, "a pointer of Git LFS"),
        (LOGIN, "an HTML page"),
        (HEADERS, "an e-mail"),
    ):
        for ending in ("pdf", "PDF", "docx", "pptx", "xlsx", "ods", "odt", "rtf", "epub", "msg", "png", "zip"):
            said = f"corrupt_document: The file is {what}, and its name says {ending.upper()}"
            assert told(data, f"a.{ending}").startswith(said)


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        *((POINTER, f"a{ending}", "corrupt_document: ") for ending in (".md", ".txt", ".doc", ".xls", ".ipynb", "")),
        (docx(""), "a.pdf", "corrupt_document: The file is DOCX, and its name says PDF"),
        (archive({"notes.txt": "words"}), "a.docx", "corrupt_document: The file is a ZIP archive, and its name says"),
        (hashlib.shake_128(b"1").digest(1024), "a.txt", "binary_file: "),
        (ole("EncryptionInfo", "EncryptedPackage"), "a.docx", "password_protected: "),
        (archive({"a.docx": docx(""), "word/x": ""}), "a", "unsupported_type: The file is a ZIP archive"),
        (stored("vnd.oasis.opendocument.presentation"), "a", "unsupported_type: The file is an OpenDocument"),
        (ole("WordDocument", "1Table"), "a", "unsupported_type: The file is a Word document of 97 to 2003"),
        (ole("PowerPoint Document"), "a.doc", "unsupported_type: The file is a PowerPoint"),
        (gzip.compress(b"words" * 100, mtime=0), "a", "unsupported_type: The file is a gzip"),
        (b"<svg xmlns=''>", "a", "unsupported_type: The file is an SVG image, which is not read. Supported are"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, name: str, expected: str) -> None:
    assert told(data, name).startswith(expected)


def test_a_directory_that_makes_no_sense_is_damaged() -> None:
    for tail in (b"", b"PK\5\6", b"PK\5\6" + bytes(18), b"PK\5\6" + b"\xff" * 18):
        for middle in (b"", b"PK\1\2" * 1000, b"PK\1\2" + bytes(42), b"PK\1\2" + b"\xff" * 42):
            # `corrupt_document`, or DOCX, whose reader says so
            assert told(b"PK\3\4" + middle + tail, "a.docx")[:16] in {"corrupt_document", ".docx"}


def test_no_two_formats_claim_the_same_type_or_ending() -> None:
    for claimed in ([one.media_type for one in FORMATS], [ending for one in FORMATS for ending in one.endings]):
        assert len(set(claimed)) == len(claimed)
