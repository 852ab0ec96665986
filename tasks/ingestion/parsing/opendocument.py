"""Texts of OpenDocument (ODT): headings, paragraphs, lists and tables in the order of the document, then its notes."""

import posixpath
from collections import Counter
from collections.abc import Mapping

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
from tasks.ingestion.parsing.extracted import Extracted, joined
from tasks.ingestion.parsing.html_to_markdown import Cell, MarkdownWriter, Passage, markdown
from tasks.ingestion.parsing.refusals import corrupt, protected

_NAME = "ODT"
# What was deleted, what repeats the headings, and how a picture is called.
_LEFT_OUT = {"tracked-changes", "table-of-content", "title", "desc", "forms", "ruby-text", "covered-table-cell"}
_UNREAD = {"annotation": "comment", "image": "picture", **dict.fromkeys(("object", "object-ole"), "embedded document")}
_TAGS = {"table": "table", "table-row": "tr", "table-cell": "td", "list-item": "li", "line-break": "br"}
"""Elements of HTML for those of the document."""
_ATTRIBUTES = {"number-columns-spanned": "colspan", "number-rows-spanned": "rowspan", "start-value": "value"}
_STYLES = ("{*}list-level-style-number", "{*}text-properties")


def read_odt(data: bytes) -> Extracted:
    """Markdown.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`, `missing_parser`.
    """
    archive = open_archive(data, _NAME)
    if b"encryption-data" in (read_member(archive, "META-INF/manifest.xml") or b""):
        raise protected(_NAME)
    content = read_xml(archive, "content.xml")
    body = next(content.iter("{*}body"), None) if content is not None else None
    if content is None or body is None:
        raise corrupt(_NAME)
    parts = (part for part in (content, read_xml(archive, "styles.xml")) if part is not None)
    reader = _Reader(archive, [found for part in parts for found in part.iter(*_STYLES)])
    reader.read(body)
    title = first_text(read_xml(archive, "meta.xml"), "title")
    return joined([markdown([*reader.writer.blocks, *reader.notes])], title, unread=reader.unread)


class _Reader:
    """Reads elements. The parser has bounded their depth, so recursion ends."""

    def __init__(self, archive: Archive, styles: list[Element]) -> None:
        self.notes: list[Passage] = []
        self.unread = Counter[str]()
        self.writer = MarkdownWriter()
        self._archive = archive
        self._numbered = {  # styles of lists, and their levels
            (attribute(level.getparent(), "name"), attribute(level, "level"))
            for level in styles
            if attribute(level, "num-format")
        }
        self._raised = {  # styles that say `super 58%` or `-33% 58%`
            attribute(said.getparent(), "name"): "sub" if place.startswith(("sub", "-")) else "sup"
            for said in styles
            if (place := attribute(said, "text-position")) and place[0] != "0" and attribute(said.getparent(), "name")
        }
        self._lists: list[str] = []  # styles of those that are open
        self._beside: list[Element] | None = None  # boxes, which float beside the paragraph that is open

    def read(self, parent: Element) -> None:
        """What is within an element."""
        self.writer.text(parent.text or "")
        for child in parent:
            self._read_one(child)
            self.writer.text(child.tail or "")

    def _read_one(self, element: Element) -> None:
        match local_name(element):
            case name if name in _LEFT_OUT:
                pass
            case "p":
                self._paragraph("p", element)
            case "h":
                level = attribute(element, "outline-level")
                self._paragraph(f"h{level if level in set('12345') else 6}", element)
            case "list" if next(element.iter("{*}h"), None) is None:  # numbered headings may stand in lists
                self._list(element)
            case name if tag := _TAGS.get(name) or self._raised.get(attribute(element, "style-name")):
                attributes = {_ATTRIBUTES.get(key.rpartition("}")[2], ""): str(said) for key, said in element.items()}
                self._within(tag, element, attributes)
            case "s" | "tab":
                self.writer.text(" ")
            case name if name in _UNREAD:
                self._left_out(element, _UNREAD[name])
            case "note":
                self._note(element)
            case _ if self._beside is not None and element.find("{*}p") is not None:
                self._beside.append(element)
            case _:
                self.read(element)

    def _left_out(self, element: Element, kind: str) -> None:
        content = posixpath.normpath(attribute(element, "href")) + "/content.xml"
        if b"<office:chart" in (read_member(self._archive, content) or b""):
            kind = "chart"
        self.unread[kind] += kind != "picture" or element.getprevious() is None  # or it shows what is before it

    def _within(self, tag: str, element: Element, attributes: Mapping[str, str]) -> None:
        self.writer.enter(tag, attributes)
        self.read(element)
        self.writer.leave(tag)

    def _paragraph(self, tag: str, element: Element) -> None:
        self._beside = []
        self._within(tag, element, {})
        beside, self._beside = self._beside, None
        for box in beside:
            self.read(box)

    def _list(self, element: Element) -> None:
        self._lists.append(attribute(element, "style-name") or (self._lists[-1] if self._lists else ""))
        numbered = (self._lists[-1], str(len(self._lists))) in self._numbered
        self._within("ol" if numbered else "ul", element, {})
        self._lists.pop()

    def _note(self, note: Element) -> None:
        """Puts its text among the notes, and its mark into the text."""
        mark = next(("".join(map(str, part.itertext())) for part in note.iterchildren("{*}note-citation")), "")
        outer, beside, self.writer = self.writer, self._beside, MarkdownWriter()
        for part in note.iterchildren("{*}note-body"):
            self.read(part)
        self.notes.append(Passage("paragraph", f"[{mark}] {Cell(self.writer.blocks).words}"))
        self.writer, self._beside = outer, beside
        self.writer.text(f"[{mark}]")
