"""PDF: the text of its pages, as PDFium finds it. Columns and tables come in the order in which the file draws them."""

import re
from typing import TYPE_CHECKING

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.parsed_document import Builder, Parsed, clean
from tasks.documents.parsing.refusals import corrupt, missing, protected, refused

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_MEDIA_TYPE = "application/pdf"
_HEADER = b"%PDF-"
_HEADER_WITHIN = 1024  # readers accept junk before the header, and so do we
_BEFORE_HEADER = b"\xef\xbb\xbf \t\r\n\f\0"
_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD of fpdfview.h
_SECURITY_ERROR = 5  # FPDF_ERR_SECURITY: encrypted in a way that PDFium does not know
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


def parse_pdf(data: bytes) -> Parsed:
    """The text, a block for each page, or for each paragraph where blank lines divide them.

    Raises:
        DocumentFailed: `password_protected`, `corrupt_document`, `no_text`, `document_too_large`, `missing_parser`.
    """
    try:
        from pypdfium2 import PdfDocument, PdfiumError  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("pypdfium2") from None
    try:
        document = PdfDocument(data)
    except PdfiumError as error:
        if getattr(error, "err_code", None) in {_PASSWORD_ERROR, _SECURITY_ERROR}:
            raise protected("PDF") from None
        raise corrupt("PDF") from None
    try:
        return _read(document)
    except PdfiumError:
        raise corrupt("PDF") from None
    finally:
        document.close()


def _read(document: "PdfDocument") -> Parsed:
    builder = Builder()
    has_text = False
    for number in range(len(document)):
        builder.begin_page()
        page = document[number]
        text = clean(_text_of(page))
        page.close()
        for paragraph in _BLANK_LINES.split(text):
            has_text = has_text or bool(paragraph.strip())
            builder.add("paragraph", paragraph)
    if not has_text:
        raise refused(
            "no_text",
            "The PDF has pictures of pages and no text in them. Run OCR first (for example ocrmypdf), then ingest "
            "its result.",
        )
    return builder.parsed(_MEDIA_TYPE, document.get_metadata_dict().get("Title"))


def _text_of(page: "PdfPage") -> str:
    text_page = page.get_textpage()
    try:
        # Not get_text_bounded: it joins what PDFium has found to stand on lines of their own (`2\n4` becomes `24`).
        return str(text_page.get_text_range())
    finally:
        text_page.close()


def _is_pdf(data: bytes) -> bool:
    return data[:_HEADER_WITHIN].lstrip(_BEFORE_HEADER).startswith(_HEADER)


def _holds_pdf(data: bytes) -> bool:
    return _HEADER in data[:_HEADER_WITHIN]


PDF = DocumentFormat(
    _MEDIA_TYPE, "PDF", "binary", parse_pdf, endings=(".pdf",), recognises=_is_pdf, behind_junk=_holds_pdf
)
