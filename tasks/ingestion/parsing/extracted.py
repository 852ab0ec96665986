"""What reading a document gives: its text, clean and bounded, and what could not be read of it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tasks.document_error import MAX_WARNED_PAGES, DocumentWarning
from tasks.ingestion.parsing.refusals import no_text, too_large

Structure: TypeAlias = Literal["markdown", "paragraphs"]

PARSER_VERSION = "5"
"""Part of the fingerprint: to be changed with anything that changes the text or the structure of a document."""

MAX_TEXT_CHARS = 20_000_000
"""Of one document."""

_MAX_TITLE_CHARS = 500
_FEW_CHARS, _NO_CHARS = 100, 10  # beside each picture: with more it is an illustration, with fewer a scan
_REMEDIES = {
    "chart": ("charts_left_out", "Give the numbers in a table."),
    "embedded document": ("objects_left_out", "Ingest these as files of their own."),
    "attachment": ("attachments_left_out", "Save these and ingest them as files of their own."),
    "slide of pictures alone": ("pages_without_text", "Run OCR, or say in the notes what they show."),
    "uncalculated formula": ("uncalculated_formulas", "Open the file in a spreadsheet program and save it again."),
}
_BY_HAND = ("unread_parts", "Write what they say into the document as text.")
_LINE_END = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
# Control characters, lone surrogates, byte order marks and non-characters: nobody searches for them, PostgreSQL takes
# no NUL, and UTF-8 has no surrogates. PDFium marks a hyphen at the end of a line by U+0002: the word's halves meet.
# Soft hyphens, zero-width spaces and word joiners stand within words. Zero-width joiners stay: Persian and emoji need
# them.
_REMOVED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u2060\ud800-\udfff\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a document.

    Attributes:
        text: what is cut into chunks; made by `clean`, or by `join_pages`, which cleans it.
        structure: `markdown`: headings, lists, tables and fences mean what they mean in Markdown. `paragraphs`: blank
            lines divide it, and nothing else means anything.
        title: if the document says it.
        pages: offsets into `text` at which pages 1, 2, … begin; empty for a document without pages.
        warnings: what could not be read.
    """

    text: str = field(repr=False)
    structure: Structure
    title: str | None = field(default=None, repr=False)
    pages: Sequence[int] = ()
    warnings: Sequence[DocumentWarning] = ()


def clean(text: str) -> str:
    """The text with one kind of line end, without control characters, invalid ones, and invisible ones within words."""
    return _REMOVED.sub("", _LINE_END.sub("\n", text))


def left_out(counts: Mapping[str, int], pages: Sequence[int] = ()) -> list[DocumentWarning]:
    """A warning for each code of what was not read, by kind and number, on these pages."""
    found = dict[tuple[str, str], list[str]]()
    for kind, count in sorted(counts.items()):
        if count:
            found.setdefault(_REMEDIES.get(kind, _BY_HAND), []).append(f"{kind} ({count})")
    said = ((code, f"Not read: {', '.join(kinds)}. {remedy}") for (code, remedy), kinds in sorted(found.items()))
    return [DocumentWarning(code, message, tuple(pages[:MAX_WARNED_PAGES])) for code, message in said]


def joined(
    blocks: Iterable[str],
    title: str | None = None,
    warnings: Sequence[DocumentWarning] = (),
    unread: Mapping[str, int] | None = None,
) -> Extracted:
    """A document of these blocks of Markdown, cleaned; those without text are left out.

    `unread` is for `left_out`; of a `picture` it says so only where there is little text beside each.

    Raises:
        DocumentFailed: `no_text` (also if nearly all of it is pictures), `document_too_large`.
    """
    text, _ = join_pages(blocks)
    counts = dict(unread or {})
    pictures = counts.get("picture", 0)
    if not text or len(text) < _NO_CHARS * pictures:
        raise no_text()
    if len(text) >= _FEW_CHARS * pictures:
        counts["picture"] = 0
    return Extracted(text, "markdown", title_of(title), warnings=[*warnings, *left_out(counts)])


def join_pages(pages: Iterable[str]) -> tuple[str, list[int]]:
    """The text of all pages, cleaned, a blank line between two of them; and the offset at which each begins.

    Raises:
        DocumentFailed: `document_too_large`.
    """
    parts, starts, chars = list[str](), list[int](), 0
    for page in pages:
        text = clean(page).strip("\n")
        if text and chars:
            parts.append("\n\n")
            chars += 2
        starts.append(chars)
        parts.append(text)
        chars += len(text)
        check_chars(chars)
    return "".join(parts), starts


def check_chars(chars: int) -> None:
    """Raises DocumentFailed for more text than one document may have."""
    if chars > MAX_TEXT_CHARS:
        raise too_large(f"has more than {MAX_TEXT_CHARS:,} characters of text")


def title_of(title: str | None) -> str | None:
    """A title on one line, of reasonable length; None for a blank one."""
    return " ".join(clean(title).split())[:_MAX_TITLE_CHARS] or None if title else None
