"""Texts of OpenDocument (ODT): headings, paragraphs, lists and tables in the order of the document, then its notes."""

from collections.abc import Iterator

from tasks.document_error import DocumentWarning
from tasks.ingestion.parsing.archive import (
    Archive,
    Element,
    attribute,
    first_text,
    local_name,
    open_archive,
    read_member,
    read_xml,
)
from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, title_of
from tasks.ingestion.parsing.pipe_table import pipe_table
from tasks.ingestion.parsing.refusals import corrupt, no_text, protected

_NAME = "ODT"
_ENCRYPTED = b"encryption-data"
# What was deleted, what others say of the text, what repeats the headings, and how a picture is called.
_LEFT_OUT = {
    "tracked-changes",
    "annotation",
    "annotation-end",
    "table-of-content",
    "title",
    "desc",
    "forms",
    "ruby-text",
}
_MAX_LEVEL = 6
_MAX_NUMBER = 100  # of spaces in a row, of levels: a file says a billion as easily


def read_odt(data: bytes) -> Extracted:
    """Markdown.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`, `missing_parser`.
    """
    archive = open_archive(data, _NAME)
    if _ENCRYPTED in (read_member(archive, "META-INF/manifest.xml") or b""):
        raise protected(_NAME)
    content = read_xml(archive, "content.xml")
    body = next(content.iter("{*}body"), None) if content is not None else None
    if content is None or body is None:
        raise corrupt(_NAME)
    reader = _Reader(archive, _numbered([content, read_xml(archive, "styles.xml")]))
    blocks = [*reader.blocks(body), *reader.notes]
    if not blocks:
        raise no_text()
    text = clean("\n\n".join(blocks))
    check_chars(len(text))
    title = title_of(first_text(read_xml(archive, "meta.xml"), "title"))
    return Extracted(text, "markdown", title, warnings=reader.warnings())


def _numbered(parts: list[Element | None]) -> set[tuple[str, int]]:
    """The styles of lists, and their levels, that are numbers and not bullets."""
    return {
        (attribute(style, "name"), _number(attribute(level, "level")))
        for part in parts
        if part is not None
        for style in part.iter("{*}list-style")
        for level in style
        if local_name(level) == "list-level-style-number" and attribute(level, "num-format")
    }


def _number(text: str) -> int:
    """Of an attribute; 1 where it says none, and never more than a document needs."""
    return min(int(text), _MAX_NUMBER) if text.isascii() and text.isdigit() else 1


class _Reader:
    """Reads elements. The parser has bounded their depth, so recursion ends."""

    def __init__(self, archive: Archive, numbered: set[tuple[str, int]]) -> None:
        self.notes: list[str] = []
        self._archive = archive
        self._numbered = numbered
        self._objects = 0

    def blocks(self, parent: Element) -> Iterator[str]:
        return (block for block in self._read(parent) if block)

    def _read(self, parent: Element) -> Iterator[str]:
        for child in parent:
            match local_name(child):
                case "h":
                    yield from self._paragraph(
                        child, "#" * min(_number(attribute(child, "outline-level")), _MAX_LEVEL) + " "
                    )
                case "p":
                    yield from self._paragraph(child)
                case "list" if next(child.iter("{*}h"), None) is None:  # numbered headings may stand in lists
                    yield "\n".join(self._items(child, 1, ""))
                case "table":
                    yield pipe_table(self._rows(child))
                case "object":
                    yield self._formula(attribute(child, "href"))
                case name if name not in _LEFT_OUT:  # body, sections, indexes, frames
                    yield from self.blocks(child)

    def warnings(self) -> list[DocumentWarning]:
        """Of what was left out."""
        if not self._objects:
            return []
        message = f"Charts and embedded documents ({self._objects}) were not read: ingest them as files of their own."
        return [DocumentWarning("objects_left_out", message)]

    def _paragraph(self, paragraph: Element, mark: str = "") -> Iterator[str]:
        """Its text, and what floats beside it."""
        boxes = list[Element]()
        text = self._text(paragraph, boxes).strip()
        if text:
            yield mark + (" ".join(text.split()) if mark else text)
        for box in boxes:
            yield from self.blocks(box)

    def _text(self, element: Element, boxes: list[Element]) -> str:
        parts = [element.text or ""]
        for child in element:
            match local_name(child):
                case name if name in _LEFT_OUT:
                    pass
                case "s":
                    parts.append(" " * _number(attribute(child, "c")))
                case "tab":
                    parts.append("\t")
                case "line-break":
                    parts.append("\n")
                case "object":
                    parts.append(self._formula(attribute(child, "href")))
                case "note":
                    parts.append(self._note(child))
                case _ if next(child.iterchildren("{*}p", "{*}h", "{*}list", "{*}table"), None) is not None:
                    boxes.append(child)
                case _:
                    parts.append(self._text(child, boxes))
            parts.append(child.tail or "")
        return "".join(parts)

    def _note(self, note: Element) -> str:
        """Puts its text among the notes; what stands for it in the text."""
        mark = next((self._text(part, []) for part in note.iter("{*}note-citation")), "")
        texts = [text for part in note.iter("{*}note-body") for text in self.blocks(part)]
        self.notes.append(f"[{mark}] {' '.join(texts)}")
        return f"[{mark}]"

    def _formula(self, name: str) -> str:
        """An equation as it was typed; other objects are counted."""
        root = read_xml(self._archive, f"{name.removeprefix('./')}/content.xml")
        if root is None or local_name(root) != "math":
            self._objects += 1
            return ""
        return " ".join((first_text(root, "annotation") or "".join(map(str, root.itertext()))).split())

    def _items(self, parent: Element, level: int, style: str) -> Iterator[str]:
        style = attribute(parent, "style-name") or style
        number = 0
        for item in parent:
            lines = list[str]()
            for child in item:
                if local_name(child) == "list":
                    lines += [f"   {line}" for line in self._items(child, level + 1, style)]
                else:
                    lines += [" ".join(line.split()) for line in self._one(child)]
            if not lines:
                continue
            if local_name(item) == "list-header" or lines[0].startswith(" "):
                yield from (line.removeprefix("   ") for line in lines)
                continue
            number += 1
            yield f"{number}. {lines[0]}" if (style, level) in self._numbered else f"- {lines[0]}"
            yield from (line if line.startswith(" ") else f"   {line}" for line in lines[1:])

    def _one(self, child: Element) -> Iterator[str]:
        return self._paragraph(child) if local_name(child) in {"p", "h"} else self.blocks(child)

    def _rows(self, table: Element) -> Iterator[list[str]]:
        for row in table:
            if local_name(row) == "table-row":
                yield [" ".join(self.blocks(cell)) for cell in row]
            elif local_name(row) in {"table-header-rows", "table-rows", "table-row-group"}:
                yield from self._rows(row)
