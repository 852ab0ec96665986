"""The table of formats, and how the format of a file is recognised: a new format is one function and one entry here.

Bytes decide. A name that promises a binary format is held to it: what lies there else is there by mistake, such as a
pointer of Git LFS or the page of a login. Text is told by its beginning, and where that says nothing, by its name.

Cheap and safe enough for the worker's own process: nothing is unpacked.
"""

import re
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

from tasks.document_error import DocumentFailed
from tasks.ingestion.parsing.docx import read_docx
from tasks.ingestion.parsing.epub import read_epub
from tasks.ingestion.parsing.extracted import Extracted
from tasks.ingestion.parsing.html import read_html
from tasks.ingestion.parsing.mail import is_mail, is_mbox, read_mail, read_mbox
from tasks.ingestion.parsing.markdown import read_markdown, read_text
from tasks.ingestion.parsing.notebook import read_notebook
from tasks.ingestion.parsing.opendocument import read_odt
from tasks.ingestion.parsing.outlook import read_msg
from tasks.ingestion.parsing.pdf import holds_pdf, is_pdf, read_pdf
from tasks.ingestion.parsing.refusals import corrupt, misnamed, protected, refused
from tasks.ingestion.parsing.restructured import read_rst
from tasks.ingestion.parsing.rich_text import read_rtf
from tasks.ingestion.parsing.slides import read_pptx
from tasks.ingestion.parsing.spreadsheet import read_spreadsheet
from tasks.ingestion.parsing.text_encoding import utf16_without_mark


class Format(NamedTuple):
    """A format of documents.

    Attributes:
        media_type: names it between the worker and its sandbox.
        name: for messages, such as "plain text".
        endings: of names, with the dot.
        read: what a document of it says. Raises `DocumentFailed`. Imports its library when it is first called.
        binary: under its endings nothing else is read.
        harmless: read by Python alone, in time linear in its size: small documents need no process of their own.
    """

    media_type: str
    name: str
    endings: tuple[str, ...]
    read: Callable[[bytes], Extracted]
    binary: bool = False
    harmless: bool = False


_OOXML = "application/vnd.openxmlformats-officedocument"
_ODF = "application/vnd.oasis.opendocument"

TEXT = Format("text/plain", "plain text", (".txt",), read_text, harmless=True)
_MARKDOWN_ENDINGS = (".md", ".markdown", ".mdown", ".mkd", ".mdx")
MARKDOWN = Format("text/markdown", "Markdown", _MARKDOWN_ENDINGS, read_markdown, harmless=True)
RST = Format("text/x-rst", "reStructuredText", (".rst", ".rest"), read_rst)
HTML = Format("text/html", "HTML", (".html", ".htm", ".xhtml", ".xht"), read_html)
PDF = Format("application/pdf", "PDF", (".pdf",), read_pdf, binary=True)
DOCX = Format(f"{_OOXML}.wordprocessingml.document", "DOCX", (".docx", ".docm", ".dotx"), read_docx, binary=True)
PPTX = Format(f"{_OOXML}.presentationml.presentation", "PPTX", (".pptx", ".pptm", ".ppsx"), read_pptx, binary=True)
SPREADSHEET = Format(
    f"{_OOXML}.spreadsheetml.sheet",
    "a spreadsheet (XLSX, XLSB, XLS, ODS)",
    (".xlsx", ".xlsm", ".xltx", ".xlsb", ".xls", ".ods"),
    read_spreadsheet,
    binary=True,
)
ODT = Format(f"{_ODF}.text", "ODT", (".odt", ".ott"), read_odt, binary=True)
RTF = Format("application/rtf", "RTF", (".rtf",), read_rtf, binary=True)
EPUB = Format("application/epub+zip", "EPUB", (".epub",), read_epub, binary=True)
MAIL = Format("message/rfc822", "e-mail (EML, MHT)", (".eml", ".mht", ".mhtml"), read_mail)
MBOX = Format("application/mbox", "MBOX", (".mbox",), read_mbox)
MSG = Format("application/vnd.ms-outlook", "MSG", (".msg",), read_msg, binary=True)
NOTEBOOK = Format("application/x-ipynb+json", "a Jupyter notebook", (".ipynb",), read_notebook)

FORMATS = (TEXT, MARKDOWN, RST, HTML, PDF, DOCX, PPTX, SPREADSHEET, ODT, RTF, EPUB, MAIL, MBOX, MSG, NOTEBOOK)
"""In the order in which messages name them."""

_BY_ENDING = {ending: one for one in FORMATS for ending in one.endings}
_READ = ", ".join(one.name.removeprefix("a ") for one in FORMATS)
_SUPPORTED = f"Supported are {_READ}; and JSON lines, CSV and Parquet, where every record is a document."

_UNREAD_ENDINGS = (
    "7z avi bmp bz2 exe gif gz heic jpeg jpg m4a mkv mov mp3 mp4 odg odp ogg parquet png ppt rar sqlite tar tgz tif "
    "tiff wav webm webp xz zip"
)
# Not DOC and XLS: mails, pages and tables of text are saved so.
_HELD = {ending for ending, one in _BY_ENDING.items() if one.binary} - {".xls"}
_HELD |= {f".{ending}" for ending in _UNREAD_ENDINGS.split()}

_SAMPLE_BYTES = 64 * 1024
_MAX_CONTROL_SHARE = 0.02
_MAX_POINTER_BYTES = 1024  # says the specification of Git LFS
_POINTER = b"version https://git-lfs.github.com/spec/"
_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_BLANK = b"\xef\xbb\xbf\xff\xfe \t\r\n\f"

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF87a", "a GIF image"),
    (0, b"GIF89a", "a GIF image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (4, b"ftyp", "a video, a recording or a picture (MP4, HEIC)"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"7z\xbc\xaf'\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"PAR1", "a Parquet file"),
)
"""Offset, bytes, what it is. Short ones are letters too, so all of them count only where the bytes are no text.

Only what people put beside their documents: the rest is said to be binary, which is as much help.
"""


def sniff(data: bytes, name: str) -> Format:
    """The format of a file.

    Raises:
        DocumentFailed: `unsupported_type`, `binary_file`, `password_protected`, or `corrupt_document` for a file whose
            name promises a binary format that its bytes are not.
    """
    ending = PurePosixPath(name).suffix.lower()
    head = data[:_SAMPLE_BYTES]
    start = head.replace(b"\0", b"").lstrip(_BLANK)[:1024].lower()  # as far as it is ASCII, of UTF-16 too
    if len(data) <= _MAX_POINTER_BYTES and start.startswith(_POINTER):
        raise misnamed("a pointer of Git LFS", _promise(ending))
    found = _binary_format(data, start, ending)
    if found is not None:
        if ending in _HELD and _BY_ENDING.get(ending, found) is not found:
            raise misnamed(found.name, _promise(ending))
        return found
    if not _is_text(head):
        raise _unknown(head, ending)
    found = _text_format(head, start, ending)
    page_as_mail = found is HTML and _BY_ENDING.get(ending) in (MAIL, MBOX)
    if ending in _HELD or page_as_mail:
        what = "an HTML page" if found is HTML else "an e-mail" if found in (MAIL, MBOX) else "text"
        raise misnamed(what, _promise(ending))
    return found


def _promise(ending: str) -> str:
    return ending[1:].upper() or "nothing of it"


def _binary_format(data: bytes, start: bytes, ending: str) -> Format | None:
    if is_pdf(data):
        return PDF
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _zipped(data, ending)
    if data.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _old_office(data, ending)
    if start.startswith(b"{\\rtf"):
        return RTF
    # Text may tell of PDFs. Mail servers put junk before them.
    if holds_pdf(data) and (ending in PDF.endings or not _is_text(data[:_SAMPLE_BYTES])):
        return PDF
    return None


# ---- ZIP -------------------------------------------------------------------------------------------------------------

_OFFICE_FOLDERS = {b"word": DOCX, b"ppt": PPTX, b"xl": SPREADSHEET}
_OPEN_DOCUMENTS = {b"text": ODT, b"text-template": ODT, b"spreadsheet": SPREADSHEET}
_MIMETYPE = re.compile(rb"mimetype.{0,64}?application/(?:(epub\+zip)|vnd\.oasis\.opendocument\.([a-z-]+))", re.DOTALL)
_MAX_ENTRIES = 65_536


def _zipped(data: bytes, ending: str) -> Format:
    if stated := _MIMETYPE.search(data[:256]):
        found = EPUB if stated[1] else _OPEN_DOCUMENTS.get(stated[2])
        if found is None:
            raise _unsupported("an OpenDocument file that is neither text nor a spreadsheet")
        return found
    names = list(islice(_entries(data), _MAX_ENTRIES))
    if b"[Content_Types].xml" in names:
        for name in names:
            if found := _OFFICE_FOLDERS.get(name.replace(b"\\", b"/").partition(b"/")[0].lower()):
                return found
    if b"META-INF/container.xml" in names:
        return EPUB
    promised = _BY_ENDING.get(ending)
    if promised is not None and promised.binary and (not names or {b"[Content_Types].xml", b"content.xml"} & {*names}):
        return promised  # cut off, zipped anew, or made in an odd way: its reader says more
    raise _unsupported("a ZIP archive") if ending not in _BY_ENDING else misnamed("a ZIP archive", _promise(ending))


def _entries(data: bytes) -> Iterator[bytes]:
    """The names in the directory at the end of a ZIP file."""
    end = data.rfind(b"PK\x05\x06")
    if end < 0 or len(data) < end + 22:
        return
    size, offset = struct.unpack_from("<II", data, end + 12)
    at = offset if data.startswith(b"PK\x01\x02", offset) else end - size
    while at >= 0 and data.startswith(b"PK\x01\x02", at) and at + 46 <= len(data):
        name, extra, comment = struct.unpack_from("<HHH", data, at + 28)
        yield data[at + 46 : at + 46 + name]
        at += 46 + name + extra + comment


# ---- OLE, the container of Office 97 to 2003 -------------------------------------------------------------------------

_STREAMS: tuple[tuple[str, str], ...] = (
    ("__properties_version1.0", ".msg"),
    ("__substg1.0_", ".msg"),
    ("EncryptedPackage", ""),
    ("WordDocument", ".doc"),
    ("PowerPoint Document", ".ppt"),
    ("Workbook", ".xls"),
    ("Book", ".xls"),
)
"""Names of streams, and whose they are. A document may hold those of another kind, which is embedded."""
_ENTRY_BYTES = 128


def _old_office(data: bytes, ending: str) -> Format:
    kinds = [kind for stream, kind in _STREAMS if _has_stream(data, stream)]
    kind = ending if ending in kinds else kinds[0] if kinds else None
    match kind:
        case ".msg":
            return MSG
        case ".xls":
            return SPREADSHEET
        case "":
            raise protected("Office document")
        case ".doc":
            raise _unsupported("a Word document of 97 to 2003 (DOC; save it as DOCX)")
        case ".ppt":
            raise _unsupported("a PowerPoint presentation of 97 to 2003 (PPT; save it as PPTX)")
    raise _unsupported("a file of Microsoft Office or Windows of an old kind (OLE)")


def _has_stream(data: bytes, name: str) -> bool:
    # Entries of the directory are aligned and begin with their name; elsewhere the same bytes are somebody's text.
    found = re.finditer(re.escape(name.encode("utf-16-le")), data)
    return any(match.start() % _ENTRY_BYTES == 0 for match in found)


# ---- text ------------------------------------------------------------------------------------------------------------


def _is_text(head: bytes) -> bool:
    if head.startswith(_BOMS):
        return True
    if b"\0" in head:
        return utf16_without_mark(head) is not None
    controls = sum(head.count(byte) for byte in range(32) if byte not in b"\t\n\v\f\r\b\x1b")
    return controls <= _MAX_CONTROL_SHARE * len(head)


def _text_format(head: bytes, start: bytes, ending: str) -> Format:
    named = _BY_ENDING.get(ending)
    if named in (MARKDOWN, RST, NOTEBOOK):
        return named
    if start.startswith(b"%!ps"):
        raise _unsupported("a PostScript document")
    if _is_html(start):
        return HTML
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        raise _unsupported("an SVG image")
    if is_mbox(head):
        return MBOX
    if is_mail(head):
        return MAIL
    return named if named is not None and not named.binary else TEXT


def _is_html(start: bytes) -> bool:
    if start.startswith((b"<?xml", b"<!--")):
        return b"<html" in start
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body"))


# ---- what is not read ------------------------------------------------------------------------------------------------


def _unknown(head: bytes, ending: str) -> DocumentFailed:
    promised = _BY_ENDING.get(ending)
    for offset, magic, what in _MAGIC:
        if head.startswith(magic, offset):
            return misnamed(what, _promise(ending)) if promised and promised.binary else _unsupported(what)
    if promised and promised.binary:
        return corrupt(promised.name)  # which says more than "binary"
    return refused("binary_file", f"The file is neither text nor of a known document type. {_SUPPORTED}")


def _unsupported(what: str) -> DocumentFailed:
    return refused("unsupported_type", f"The file is {what}, which is not read. {_SUPPORTED}")
