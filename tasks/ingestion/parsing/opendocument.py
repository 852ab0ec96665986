"""Texts of OpenDocument (ODT): headings, paragraphs, lists and tables in the order of the document, then its notes."""

from collections.abc import Mapping

from tasks.document_error import DocumentWarning
from tasks.ingestion.parsing.archive import (
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
_ENCRYPTED = b"encryption-data"
# What was deleted, what others say of the text, what repeats the headings, and how a picture is called.
_LEFT_OUT = {
    "tracked-changes", "annotation", "annotation-end", "table-of-content", "title", "desc", "forms", "ruby-text",
    "covered-table-cell",
}  # fmt: skip
_TAGS = {"table": "table", "table-row": "tr", "table-cell": "td", "list-item": "li", "line-break": "br"}
"""Elements of HTML for those of the document."""
_ATTRIBUTES = {"number-columns-spanned": "colspan", "number-rows-spanned": "rowspan", "start-value": "value"}
_SPACES = {"s": " ", "tab": " "}
_MAX_LEVEL = 6


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
    reader = _Reader(_numbered([content, read_xml(archive, "styles.xml")]))
    reader.read(body)
    title = first_text(read_xml(archive, "meta.xml"), "title")
    return joined([markdown([*reader.end(), *reader.notes])], title, _warnings(reader.objects))


def _warnings(objects: int) -> list[DocumentWarning]:
    if not objects:
        return []
    message = f"Embedded documents ({objects}) were not read: ingest them as files of their own."
    return [DocumentWarning("objects_left_out", message)]


def _numbered(parts: list[Element | None]) -> set[tuple[str, str]]:
    """The styles of lists, and their levels, that are numbers and not bullets."""
    return {
        (attribute(style, "name"), attribute(level, "level"))
        for part in parts
        if part is not None
        for style in part.iter("{*}list-style")
        for level in style
        if local_name(level) == "list-level-style-number" and attribute(level, "num-format")
    }


class _Reader:
    """Reads elements. The parser has bounded their depth, so recursion ends."""

    def __init__(self, numbered: set[tuple[str, str]]) -> None:
        self.notes: list[Passage] = []
        self.objects = 0
        self._writer = MarkdownWriter()
        self._numbered = numbered
        self._lists: list[str] = []  # styles of those that are open
        self._beside: list[Element] | None = None  # boxes, which float beside the paragraph that is open

    def end(self) -> list[Passage]:
        """What was read."""
        self._writer.end()
        return self._writer.blocks

    def read(self, parent: Element) -> None:
        """What is within an element."""
        self._writer.text(parent.text or "")
        for child in parent:
            self._read_one(child)
            self._writer.text(child.tail or "")

    def _read_one(self, element: Element) -> None:
        match local_name(element):
            case name if name in _LEFT_OUT:
                pass
            case "p":
                self._paragraph("p", element)
            case "h":
                level = attribute(element, "outline-level")
                self._paragraph(f"h{level if level in set('12345') else _MAX_LEVEL}", element)
            case "list" if next(element.iter("{*}h"), None) is None:  # numbered headings may stand in lists
                self._list(element)
            case name if name in _TAGS:
                attributes = {_ATTRIBUTES.get(key.rpartition("}")[2], ""): str(said) for key, said in element.items()}
                self._within(_TAGS[name], element, attributes)
            case name if name in _SPACES:
                self._writer.text(_SPACES[name])
            case "object":
                self.objects += 1
            case "note":
                self._note(element)
            case _ if self._beside is not None and element.find("{*}p") is not None:
                self._beside.append(element)
            case _:
                self.read(element)

    def _within(self, tag: str, element: Element, attributes: Mapping[str, str]) -> None:
        self._writer.enter(tag, attributes)
        self.read(element)
        self._writer.leave(tag)

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
        outer, beside, self._writer = self._writer, self._beside, MarkdownWriter()
        for part in note.iterchildren("{*}note-body"):
            self.read(part)
        self.notes.append(Passage("paragraph", f"[{mark}] {Cell(self.end()).words}"))
        self._writer, self._beside = outer, beside
        self._writer.text(f"[{mark}]")
