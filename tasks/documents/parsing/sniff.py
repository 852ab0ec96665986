"""Recognises the format of a file by its bytes and its name.

Bytes decide. A name that promises a binary format is held to it: what lies there else is there by mistake, such as a
pointer of Git LFS or the page of a login.

Cheap and safe enough for the worker's own process: nothing is unpacked.
"""

from pathlib import PurePosixPath

from tasks.document_error import DocumentFailed
from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.docx import ZIP_BEGINNINGS
from tasks.documents.parsing.html import HTML
from tasks.documents.parsing.parsers import FORMATS
from tasks.documents.parsing.plain_text import TEXT
from tasks.documents.parsing.refusals import corrupt, misnamed, protected, refused
from tasks.documents.parsing.text_encoding import utf16_without_mark

_NAMES = [document_format.name for document_format in FORMATS]
_SUPPORTED = (
    f"Supported are {', '.join(_NAMES[:-1])} and {_NAMES[-1]}; and JSON lines, CSV and Parquet, where every record is "
    "a document."
)
_SAMPLE_BYTES = 64 * 1024
_MAX_CONTROL_SHARE = 0.02

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_BLANK = b"\xef\xbb\xbf\xff\xfe \t\r\n"
_BINARY_NAMES = (
    "7z avi bmp bz2 epub exe gif gz heic jpeg jpg m4a mkv mov mp3 mp4 odp ods odt ogg parquet png ppt pptx rar sqlite "
    "tar tgz tif tiff wav webm webp xlsx xz zip"
)
_READ_BINARY = {ending: one.name for one in FORMATS if one.content == "binary" for ending in one.endings}
_PROMISED = _READ_BINARY | {f".{ending}": ending.upper() for ending in _BINARY_NAMES.split()}
"""Endings of binary formats, and what each says. Not DOC and XLS: mails, pages and tables of text are saved so."""

_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF87a", "a GIF image"),
    (0, b"GIF89a", "a GIF image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (8, b"WEBP", "a WebP image"),
    (8, b"WAVE", "a WAV recording"),
    (8, b"AVI ", "an AVI video"),
    (4, b"ftyp", "a video, a recording or a picture (MP4, HEIC)"),
    (0, b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (0, b"ID3", "an MP3 recording"),
    (0, b"\xff\xfb", "an MP3 recording"),
    (0, b"fLaC", "a FLAC recording"),
    (0, b"OggS", "an Ogg recording"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ\0", "an xz archive"),
    (0, b"(\xb5/\xfd", "a Zstandard archive"),
    (0, b"7z\xbc\xaf'\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
    (0, b"BM", "a BMP image"),
)
"""Offset, bytes, what it is. Short ones are letters too, so all of them count only where the bytes are no text.

Our own rather than puremagic's table (1.30): that one knows neither gzip nor Parquet, nor a PDF behind a mail server's
junk, cannot tell DOCX from PPTX, and takes one of 200 files of random bytes for "JSON" or the like.
"""

_TEXT_MAGIC: tuple[tuple[bytes, str], ...] = ((b"{\\rtf", "an RTF document"), (b"%!PS", "a PostScript document"))


def sniff(data: bytes, name: str) -> DocumentFormat:
    """The format of a file.

    Raises:
        DocumentFailed: `unsupported_type`, `binary_file`, `password_protected`, or `corrupt_document` for a file whose
            name promises a binary format that its bytes are not.
    """
    ending = PurePosixPath(name).suffix.lower()
    head = data[:_SAMPLE_BYTES]
    found = _binary_format(data, ending)
    if found is not None:
        if ending in _READ_BINARY and ending not in found.endings:
            raise misnamed(found.name, _PROMISED[ending])
        return found
    if head.startswith(ZIP_BEGINNINGS):
        raise _unsupported(_zipped(data))
    if head.startswith(_OLE):
        if _ENCRYPTED_OFFICE in data:
            raise protected("Office document")
        raise _unsupported("a document of Microsoft Office 97 to 2003 (DOC, XLS, PPT) or an Outlook message")
    for magic, what in _TEXT_MAGIC:
        if head.startswith(magic):
            raise _unsupported(what)
    if not _is_text(head):
        raise _binary(head, ending)
    if ending in _PROMISED:
        raise misnamed(_kind_of_text(head), _PROMISED[ending])
    return _text_format(head, ending)


def _binary_format(data: bytes, ending: str) -> DocumentFormat | None:
    for candidate in (one for one in FORMATS if one.content == "binary"):
        if candidate.recognises(data):
            return candidate
        if candidate.behind_junk(data) and (ending in candidate.endings or not _is_text(data[:_SAMPLE_BYTES])):
            return candidate
    return None


def _kind_of_text(head: bytes) -> str:
    if head.lstrip(_BLANK).startswith(_LFS_POINTER):
        return "a pointer of Git LFS"
    return "an HTML page" if HTML.recognises(_start(head)) else "text"


def _zipped(data: bytes) -> str:
    # Names of entries are not compressed.
    if b"mimetypeapplication/epub+zip" in data[:200]:
        return "an EPUB book"
    if b"mimetypeapplication/vnd.oasis.opendocument" in data[:200]:
        return "an OpenDocument file (ODT, ODS, ODP)"
    if b"[Content_Types].xml" in data:
        for folder, what in ((b"ppt/", "a PowerPoint presentation (PPTX)"), (b"xl/", "an Excel workbook (XLSX)")):
            if folder in data:
                return what
    return "a ZIP archive"


def _is_text(head: bytes) -> bool:
    if head.startswith(_BOMS):
        return True
    if b"\0" in head:
        return utf16_without_mark(head) is not None
    controls = sum(head.count(byte) for byte in range(32) if byte not in b"\t\n\v\f\r\b\x1b")
    return controls <= _MAX_CONTROL_SHARE * len(head)


def _binary(head: bytes, ending: str) -> DocumentFailed:
    for offset, magic, what in _MAGIC:
        if head.startswith(magic, offset):
            return _unsupported(what)
    for candidate in FORMATS:
        if ending in candidate.endings and candidate.content == "binary":
            return corrupt(candidate.name)  # which says more than "binary"
    return refused("binary_file", f"The file is neither text nor of a known document type. {_SUPPORTED}")


def _text_format(head: bytes, ending: str) -> DocumentFormat:
    texts = [candidate for candidate in FORMATS if candidate.content == "text"]
    for candidate in texts:
        if ending in candidate.endings:
            return candidate
    start = _start(head)
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        raise _unsupported("an SVG image")
    return next((candidate for candidate in texts if candidate.recognises(start)), TEXT)


def _start(head: bytes) -> bytes:
    """The first characters in lower case, as they come in ASCII."""
    return head.replace(b"\0", b"").lstrip(_BLANK)[:1024].lower()


def _unsupported(what: str) -> DocumentFailed:
    return refused("unsupported_type", f"The file is {what}, which is not read. {_SUPPORTED}")
