"""Types are told by bytes and name, and the bytes win."""

import gzip
import hashlib

import pytest

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.docx import DOCX
from tasks.documents.parsing.eml import EML
from tasks.documents.parsing.html import HTML
from tasks.documents.parsing.markdown import MARKDOWN
from tasks.documents.parsing.parsers import FORMATS
from tasks.documents.parsing.pdf import PDF
from tasks.documents.parsing.plain_text import TEXT
from tasks.documents.parsing.sniff import sniff
from tests.document_files import archive, docx, pdf

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (b"words", "a.txt", TEXT),
        (b"words", "README", TEXT),
        (b"a,b\n1,2", "a.csv", TEXT),
        (b"# words", "a.md", MARKDOWN),
        (b"<p>words", "a.HTM", HTML),
        (b"\n<!DOCTYPE html><html>", "page", HTML),
        (b"\xef\xbb\xbf<html>", "a.txt", HTML),
        ("wörter".encode("utf-16"), "a.txt", TEXT),
        ("words and more of them".encode("utf-16-le"), "a.txt", TEXT),
        ("w\xf6rter".encode("latin-1"), "a.txt", TEXT),
        ("日本語".encode("shift_jis"), "a.txt", TEXT),
        (pdf(["x"]), "a.txt", PDF),
        (b"junk of a mail server\r\n" + pdf(["x"]), "a.PDF", PDF),
        (b"\0\1junk\r\n" + pdf(["x"]), "", PDF),
        (b"\xef\xbb\xbf\n " + pdf(["x"]), "a.txt", PDF),
        (b"A file of this kind begins with %PDF-1.4.", "notes.md", MARKDOWN),
        (b"Subject: x\n\nIt begins with %PDF-1.4.", "m.eml", EML),
        (b"It begins with %PDF-1.4.", "README", TEXT),
        (docx(""), "a.zip", DOCX),
    ],
)
def test_supported_types(data: bytes, name: str, expected: DocumentFormat) -> None:
    assert sniff(data, name) is expected


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


@pytest.mark.parametrize("name", ["a.pdf", "a.PDF", "a.docx", "a.pptx", "a.png", "a.parquet", "a.zip"])
@pytest.mark.parametrize(
    ("data", "what"),
    [
        (LFS_POINTER, "a pointer of Git LFS"),
        (b"\n<!DOCTYPE html><html><body>Please log in", "an HTML page"),
        (b"not found", "text"),
        ("nicht da: \xfcber".encode("utf-16"), "text"),
    ],
)
def test_a_name_of_a_binary_format_is_held_to_it(name: str, data: bytes, what: str) -> None:
    with pytest.raises(DocumentFailed) as failed:
        sniff(data, name)
    assert failed.value.error.code == "corrupt_document"
    assert f"The file is {what}, and its name says {name[2:].upper()}" in failed.value.error.message


@pytest.mark.parametrize(("data", "name"), [(docx(""), "a.pdf"), (pdf(["x"]), "a.docx")])
def test_one_binary_format_under_the_name_of_another_is_not_read(data: bytes, name: str) -> None:
    with pytest.raises(DocumentFailed) as failed:
        sniff(data, name)
    assert failed.value.error.code == "corrupt_document"
    assert f"its name says {name[2:].upper()}" in failed.value.error.message


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (archive({"[Content_Types].xml": "", "ppt/presentation.xml": ""}), "PPTX"),
        (archive({"[Content_Types].xml": "", "xl/workbook.xml": ""}), "XLSX"),
        (archive({"notes.txt": "words"}), "ZIP"),
        (OLE, "DOC"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "PNG"),
        (b"\xff\xd8\xff\xe0\0\0", "JPEG"),
        (b"RIFF\0\0\0\0WAVE\0\0", "WAV"),
        (gzip.compress(b"words" * 100, mtime=0), "gzip"),  # a time in it would be another test in each process
        (b"PAR1\0\0\0\0", "Parquet"),
        (b"{\\rtf1 words}", "RTF"),
        (b"<svg xmlns=''>", "SVG"),
    ],
)
def test_a_known_type_that_is_not_read_is_named(data: bytes, what: str) -> None:
    with pytest.raises(DocumentFailed) as failed:
        sniff(data, "a.txt")
    assert failed.value.error.code == "unsupported_type"
    assert what in failed.value.error.message
    assert "Supported are plain text" in failed.value.error.message


@pytest.mark.parametrize(
    ("data", "name", "code"),
    [
        (hashlib.shake_128(b"1").digest(1024), "a.txt", "binary_file"),
        (bytes(64), "a.txt", "binary_file"),
        (b"\x01\x02\x03\x04", "a.txt", "binary_file"),
        (bytes(64), "a.pdf", "corrupt_document"),
        (OLE + "EncryptedPackage".encode("utf-16-le"), "a.docx", "password_protected"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, name: str, code: str) -> None:
    with pytest.raises(DocumentFailed) as failed:
        sniff(data, name)
    assert failed.value.error.code == code
    assert failed.value.error.stage == "parsing"


def test_text_that_begins_like_a_program_is_text() -> None:
    assert sniff(b"MZ is how programs begin", "a.txt") == TEXT


def test_no_two_formats_claim_the_same_type_or_ending() -> None:
    media_types = [known.media_type for known in FORMATS]
    endings = [ending for known in FORMATS for ending in known.endings]
    assert len(set(media_types)) == len(media_types)
    assert len(set(endings)) == len(endings)
