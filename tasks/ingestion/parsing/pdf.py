"""PDF: the text of its pages, as PDFium finds it, with the values of form fields and the comments of each page.

Columns and tables come in the order in which the file draws them.
"""

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from tasks.document_error import MAX_WARNED_PAGES, DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, join_pages, title_of
from tasks.ingestion.parsing.refusals import corrupt, missing, protected, refused
from tasks.unshown import unshown

_HEADER = b"%PDF-"
_HEADER_WITHIN = 1024  # readers accept junk before the header, and so do we
_BEFORE_HEADER = b"\xef\xbb\xbf \t\r\n\f\0"
_PASSWORD_ERRORS = {4, 5}  # of fpdfview.h: FPDF_ERR_PASSWORD, and FPDF_ERR_SECURITY for unknown ways to encrypt

_SAMPLED = 7  # every seventh character is asked whether it is mapped: asking costs more than extracting it
_FEW_UNMAPPED = 10  # bullets and signs of formulas: nobody misses them
_UNMAPPED = "\ufffd"
_UNMAPPED_RUN = re.compile(r"\ufffd\s*+(?=\ufffd)")
_STAMP_CHARS = 100  # "Scanned with …", a Bates number: no more than that is written on a picture of a page
_STAMPED_PAGES = 3
_DRAWN_SEGMENTS = 100  # of paths: letters as outlines have more, backgrounds and borders have less
_DRAWN_OBJECTS = 10_000
_MAX_OPTIONS = 1000
_UNSEEN = 2 | 32  # FPDF_ANNOT_FLAG_HIDDEN, FPDF_ANNOT_FLAG_NOVIEW
_NO_WORDS = re.compile(r"[\W\d_]+")
_XFA_SHELL = re.compile(r"please wait\b.{0,40}if this message is not eventually replaced", re.IGNORECASE | re.DOTALL)
_SHELL_CHARS = 2000
_KEPT = "An earlier version of the document is kept."


@unshown("text", "added")
class _Page(NamedTuple):
    """Text that the page draws, text that lies on it, its numbers of characters, and whether it is a picture."""

    text: str = ""
    added: str = ""
    chars: int = 0
    unmapped: int = 0
    pictured: bool = False
    damaged: bool = False


def is_pdf(data: bytes) -> bool:
    """Whether it begins as a PDF, behind white space or a byte order mark."""
    return data[:_HEADER_WITHIN].lstrip(_BEFORE_HEADER).startswith(_HEADER)


def holds_pdf(data: bytes) -> bool:
    """Whether it may be a PDF behind junk. Texts on PDF are that too: ask the name, and whether the head is text."""
    return _HEADER in data[:_HEADER_WITHIN]


def read_pdf(data: bytes) -> Extracted:
    """The text of its pages, with warnings of pages without text, unmapped characters, XFA forms and attachments.

    Raises:
        DocumentFailed: `password_protected`, `corrupt_document`, `xfa_form`, `document_too_large`, `missing_parser`,
            `no_text` (also if most of it cannot be read).
    """
    try:
        from pypdfium2 import PdfDocument, PdfiumError, raw  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("pypdfium2") from None
    try:
        document = PdfDocument(data)
    except PdfiumError as error:
        raise (protected if getattr(error, "err_code", None) in _PASSWORD_ERRORS else corrupt)("PDF") from None
    # Not `PdfDocument.init_forms`: with it every page draws its fields anew, in time that is quadratic in their number.
    interface = raw.FPDF_FORMFILLINFO(version=2)  # PDFium keeps its address
    form = raw.FPDFDOC_InitFormFillEnvironment(document, interface)
    try:
        pages = list(_pages(raw, document, form, PdfiumError))
        xfa = document.get_formtype() in {raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND}
        if xfa:
            pages = _without_shell(pages, regenerated=document.get_formtype() == raw.FORMTYPE_XFA_FULL)
        attachments = raw.FPDFDoc_GetAttachmentCount(document)
        warnings = [*_unread(pages), *_left_out(xfa=xfa, attachments=attachments)]
        text, starts = join_pages("\n\n".join(filter(None, (page.text, page.added))) for page in pages)
        return Extracted(text, "paragraphs", _title(document), starts, warnings)
    finally:
        raw.FPDFDOC_ExitFormFillEnvironment(form)
        document.close()


def _title(document: Any) -> str | None:
    try:
        return title_of(document.get_metadata_value("Title"))
    except UnicodeDecodeError:  # half a surrogate pair
        return None


def _pages(raw: Any, document: Any, form: Any, error: type[Exception]) -> Iterator[_Page]:
    chars = 0
    for number in range(len(document)):
        try:
            page = _page(raw, document[number], form)
        except error:
            page = _Page(damaged=True)
        chars += len(page.text) + len(page.added)
        check_chars(chars)
        yield page


def _page(raw: Any, page: Any, form: Any) -> _Page:
    try:
        text, chars, unmapped = _text_of(raw, page)
        added = "\n".join(dict.fromkeys(_added(raw, page, form)))
        short = not unmapped and len(_words(text)) <= _STAMP_CHARS
        return _Page(text, added, chars, unmapped, short and _is_drawn(raw, page))
    finally:
        page.close()


def _text_of(raw: Any, page: Any) -> tuple[str, int, int]:
    """The text, how many characters it has, and how many of these have no Unicode value; they become U+FFFD."""
    text_page = page.get_textpage()
    try:
        count = text_page.count_chars()
        is_unmapped = raw.FPDFText_HasUnicodeMapError
        if not any(is_unmapped(text_page, index) == 1 for index in range(0, count, _SAMPLED)):
            # Not get_text_bounded: it joins what PDFium has found to stand on lines of their own (`2\n4`: `24`).
            return clean(text_page.get_text_range()), count, 0
        chars = [
            _UNMAPPED if is_unmapped(text_page, index) == 1 else chr(raw.FPDFText_GetUnicode(text_page, index))
            for index in range(count)
        ]
    finally:
        text_page.close()
    text = "".join(chars).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return _UNMAPPED_RUN.sub("", clean(text)), count, chars.count(_UNMAPPED)


def _words(text: str) -> str:
    return _NO_WORDS.sub("", text)


def _is_drawn(raw: Any, page: Any) -> bool:
    """Whether there is something to see beside text: an image, or more lines than a background has."""
    segments = 0
    kinds = [raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH]
    for item in islice(page.get_objects(filter=kinds, max_depth=4), _DRAWN_OBJECTS):
        segments += _DRAWN_SEGMENTS if item.type == raw.FPDF_PAGEOBJ_IMAGE else raw.FPDFPath_CountSegments(item)
        if segments >= _DRAWN_SEGMENTS:
            return True
    return False


def _added(raw: Any, page: Any, form: Any) -> Iterator[str]:
    """Lines for what readers see on the page and its content does not draw: values of fields, comments."""
    unsaid = {
        raw.FPDF_ANNOT_UNKNOWN, raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_SOUND, raw.FPDF_ANNOT_MOVIE,
        raw.FPDF_ANNOT_SCREEN, raw.FPDF_ANNOT_PRINTERMARK, raw.FPDF_ANNOT_TRAPNET, raw.FPDF_ANNOT_THREED,
        raw.FPDF_ANNOT_RICHMEDIA,
    }  # fmt: skip
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            kind = raw.FPDFAnnot_GetSubtype(annotation)
            if kind in unsaid or raw.FPDFAnnot_GetFlags(annotation) & _UNSEEN:
                continue
            if kind == raw.FPDF_ANNOT_WIDGET:
                text = _field(raw, form, annotation)
            else:
                text = _string(raw, raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
            if text := clean(text).strip():
                yield text
        finally:
            raw.FPDFPage_CloseAnnot(annotation)


def _field(raw: Any, form: Any, widget: Any) -> str:
    """`name: value` of a field that is filled in; nothing of secrets, buttons and boxes that are not checked."""

    def text(function: Callable[..., int], *more: object) -> str:
        return _string(raw, function, form, widget, *more)

    value = ""
    match raw.FPDFAnnot_GetFormFieldType(form, widget):
        case raw.FPDF_FORMFIELD_TEXTFIELD:
            if not raw.FPDFAnnot_GetFormFieldFlags(form, widget) & raw.FPDF_FORMFLAG_TEXT_PASSWORD:
                value = text(raw.FPDFAnnot_GetFormFieldValue)
        case raw.FPDF_FORMFIELD_CHECKBOX | raw.FPDF_FORMFIELD_RADIOBUTTON:
            # Not FPDFAnnot_IsChecked: it knows only what `init_forms` has drawn.
            choice = text(raw.FPDFAnnot_GetFormFieldExportValue)
            state = _string(raw, raw.FPDFAnnot_GetStringValue, widget, b"AS")
            if state != "Off" and (state or choice == text(raw.FPDFAnnot_GetFormFieldValue)):
                value = choice or state
        case raw.FPDF_FORMFIELD_COMBOBOX | raw.FPDF_FORMFIELD_LISTBOX:
            options = min(raw.FPDFAnnot_GetOptionCount(form, widget), _MAX_OPTIONS)
            chosen = [n for n in range(options) if raw.FPDFAnnot_IsOptionSelected(form, widget, n)]
            value = ", ".join(text(raw.FPDFAnnot_GetOptionLabel, n) for n in chosen)
            value = value or text(raw.FPDFAnnot_GetFormFieldValue)
    if not value.strip():
        return ""
    name = text(raw.FPDFAnnot_GetFormFieldAlternateName) or text(raw.FPDFAnnot_GetFormFieldName)
    return f"{name}: {value.strip()}"


def _string(raw: Any, function: Callable[..., int], *arguments: object) -> str:
    """What a function of PDFium writes: UTF-16 with a zero at its end, after it has said how many bytes."""
    size = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    return buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "ignore")


def _without_shell(pages: list[_Page], *, regenerated: bool) -> list[_Page]:
    """An XFA form without the page that stands in for it in other readers than Adobe's.

    Raises:
        DocumentFailed: `xfa_form`: there is nothing else.
    """
    first, *others = pages or [_Page()]
    if others or len(first.text) > _SHELL_CHARS:
        return pages
    if first.added:
        return [first._replace(text="")] if _XFA_SHELL.search(first.text) else pages
    if regenerated or _XFA_SHELL.search(first.text):
        raise refused(
            "xfa_form",
            f"The PDF is an XFA form, which only Adobe Acrobat and Reader show. {_KEPT} Print it to a new PDF there, "
            "and ingest that.",
        )
    return pages


def _unread(pages: Sequence[_Page]) -> Iterator[DocumentWarning]:
    """Warnings of pages.

    Raises:
        DocumentFailed: `no_text`, `corrupt_document`: most of it is not read.
    """
    stamps = Counter(_words(page.text) for page in pages if page.pictured)
    pictures = [
        page.pictured and (not _words(page.text) or stamps[_words(page.text)] >= _STAMPED_PAGES) for page in pages
    ]
    silent = sum(is_picture and not page.added for page, is_picture in zip(pages, pictures, strict=True))
    blank = sum(not (page.text.strip() or page.added or page.pictured) for page in pages)
    if all(page.damaged for page in pages):
        raise corrupt("PDF")
    if 2 * sum(page.unmapped for page in pages) > sum(page.chars + len(page.added) for page in pages):
        raise refused(
            "no_text",
            f"Most characters of the PDF have no Unicode value: its fonts do not say which letters they draw. {_KEPT} "
            "Export it anew, or run OCR over it (for example ocrmypdf --force-ocr), then ingest the result.",
        )
    if 2 * silent > len(pages) - blank or blank == len(pages):
        raise _pictures_only(silent or blank, len(pages))
    yield from _on_pages("pages_without_text", pictures, "are pictures without text; run OCR over the PDF")
    bad = [page.unmapped > min(_FEW_UNMAPPED, page.chars // 20) for page in pages]
    yield from _on_pages("unmapped_characters", bad, "have characters without a Unicode value, which are left out")
    yield from _on_pages("unread_parts", [page.damaged for page in pages], "are damaged; save the PDF again")


def _pictures_only(count: int, of: int) -> DocumentFailed:
    return refused(
        "no_text",
        f"{count:,} of {of:,} pages of the PDF are pictures or empty, without text. {_KEPT} Run OCR first (for example "
        "ocrmypdf), then ingest its result.",
    )


def _on_pages(code: str, flags: Sequence[bool], what: str) -> Iterator[DocumentWarning]:
    numbers = tuple(number for number, flag in enumerate(flags, start=1) if flag)
    if numbers:
        message = f"{len(numbers):,} of {len(flags):,} pages {what}."
        yield DocumentWarning(code, message, numbers[:MAX_WARNED_PAGES])


def _left_out(*, xfa: bool, attachments: int) -> Iterator[DocumentWarning]:
    if xfa:
        yield DocumentWarning(
            "xfa_form",
            "What the XFA form shows in Adobe Acrobat or Reader may be missing; print it to a new PDF there.",
        )
    if attachments > 0:
        message = f"{attachments:,} files within the PDF were left out; save them from it and ingest them as well."
        yield DocumentWarning("attachments_left_out", message)
