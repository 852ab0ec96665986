"""Books (EPUB): the chapters in the order of reading, each a page of XHTML."""

import posixpath
from urllib.parse import unquote

from tasks.document_error import DocumentWarning
from tasks.ingestion.parsing.archive import Archive, Element, attribute, first_text, open_archive, read_member, read_xml
from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, title_of
from tasks.ingestion.parsing.html import declared_charset, html_to_markdown
from tasks.ingestion.parsing.refusals import corrupt, no_text, protected
from tasks.ingestion.parsing.text_encoding import decode

_NAME = "EPUB"
_PAGES = {"application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document"}


def read_epub(data: bytes) -> Extracted:
    """Markdown.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`, `missing_parser`.
    """
    archive = open_archive(data, _NAME)
    container = read_xml(archive, "META-INF/container.xml")
    entry = next(container.iter("{*}rootfile"), None) if container is not None else None
    package_name = attribute(entry, "full-path") if entry is not None else ""
    package = read_xml(archive, package_name)
    if package is None:
        raise corrupt(_NAME)
    chapters = _chapters(package, posixpath.dirname(package_name))
    encrypted = read_xml(archive, "META-INF/encryption.xml")
    if encrypted is not None:  # shops encrypt chapters; fonts may be obfuscated in any book
        locked = {unquote(attribute(reference, "URI")) for reference in encrypted.iter("{*}CipherReference")}
        if locked.intersection(chapters):
            raise protected(_NAME)
    text, missing = _text(archive, chapters)
    if not text:
        raise no_text()
    warnings = []
    if missing:
        message = f"Chapters that the book names are not in the file ({missing}): get it from its publisher again."
        warnings.append(DocumentWarning("unread_parts", message))
    return Extracted(text, "markdown", title_of(first_text(package, "title")), warnings=warnings)


def _chapters(package: Element, folder: str) -> list[str]:
    """The names of their members, in order; the table of contents repeats their headings and is left out."""
    items = {attribute(item, "id"): item for item in package.iter("{*}item")}
    chapters = []
    for reference in package.iter("{*}itemref"):
        item = items.pop(attribute(reference, "idref"), None)  # each once
        if (
            item is not None
            and attribute(item, "media-type") in _PAGES
            and "nav" not in attribute(item, "properties").split()
        ):
            href = unquote(attribute(item, "href").partition("#")[0])
            chapters.append(posixpath.normpath(posixpath.join(folder, href)))
    return chapters


def _text(archive: Archive, chapters: list[str]) -> tuple[str, int]:
    """Of all chapters; and how many there are not."""
    parts, missing, chars = list[str](), 0, 0
    for name in chapters:
        data = read_member(archive, name)
        if data is None:
            missing += 1
            continue
        markup = decode(data, declared_charset(data)) if data else ""
        if text := clean(html_to_markdown(markup, all_of_it=True)[0]).strip():
            parts.append(text)
            chars += len(text) + 2
            check_chars(chars)
    return "\n\n".join(parts), missing
