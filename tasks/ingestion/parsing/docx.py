"""DOCX: headings, paragraphs, lists and tables in the order of the document, then its notes and comments.

Read from its XML rather than through mammoth (1.13), which leaves out equations, the numbers of headings and items and
inserted files, or python-docx, which leaves out text boxes, content controls and equations too. Headers and footers
are left out: they are the same on each page.
"""

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from string import ascii_letters

from tasks.document_error import DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.archive import (
    Archive,
    Element,
    attribute,
    first_text,
    local_name,
    of_kind,
    open_archive,
    read_member,
    read_xml,
    related,
)
from tasks.ingestion.parsing.docx_styles import Place, Styles, value
from tasks.ingestion.parsing.extracted import Extracted, joined
from tasks.ingestion.parsing.html import read_html
from tasks.ingestion.parsing.html_to_markdown import Cell, Passage, markdown, script, table
from tasks.ingestion.parsing.mail import is_mail, read_mail
from tasks.ingestion.parsing.refusals import corrupt, no_text
from tasks.ingestion.parsing.rich_text import read_rtf
from tasks.ingestion.parsing.text_encoding import decode, is_plain_utf8

_NAME = "DOCX"
_DOCUMENT = "word/document.xml"
_NOTES = ("footnotes", "endnotes", "comments")
_HEAD_BYTES = 2048
_MAX_INSERTED = 3  # documents within each other
_FEW_CHARS = 100  # beside each picture


def read_docx(data: bytes) -> Extracted:
    """Markdown; a warning says which parts were not read.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`, `missing_parser`.
    """
    unread = Counter[str]()
    archive = open_archive(data, _NAME)
    text = markdown(_blocks(archive, unread, 0))
    if len(text) >= _FEW_CHARS * unread["picture"]:
        del unread["picture"]  # an illustration
    return joined([text], first_text(read_xml(archive, "docProps/core.xml"), "title"), list(_warnings(unread)))


def _warnings(unread: Counter[str]) -> Iterator[DocumentWarning]:
    parts = defaultdict[str, list[str]](list)
    for what, count in sorted(unread.items()):
        parts[_CODES.get(what, "unread_parts")].append(f"{count} {what}{'s' * (count > 1)}")
    for code, of_it in parts.items():
        message = f"Some parts of the document were not read ({', '.join(of_it)})"
        yield DocumentWarning(code, f"{message}: write what they say into the document as text.")


def _blocks(archive: Archive, unread: Counter[str], depth: int) -> list[Passage]:
    main = of_kind(related(archive, ""), "officeDocument") or _DOCUMENT
    document = read_xml(archive, main)
    if document is None:
        raise corrupt(_NAME)
    parts = related(archive, main)
    styles = (read_xml(archive, of_kind(parts, name) or f"word/{name}.xml") for name in ("styles", "numbering"))
    reader = _Reader(archive, Styles(*styles), parts, unread, depth)
    reader.read(document)
    for name in _NOTES:
        part = of_kind(parts, name) or f"word/{name}.xml"
        if (notes := read_xml(archive, part)) is not None:
            reader.parts = related(archive, part)
            reader.read(notes)
    return reader.blocks


# ---- blocks ----------------------------------------------------------------------------------------------------------

# A fallback repeats its alternative for old programs; what was deleted or moved away is no text; fields carry codes;
# readings above the line repeat it.
_LEFT_OUT = frozenset({
    "Fallback", "del", "moveFrom", "instrText", "delText", "pPr", "rPr", "sectPr", "sdtPr", "tblPr", "tblGrid", "rt",
})  # fmt: skip
_AROUND = frozenset({"sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo"})
_UNREAD = {
    "object": "embedded object", "blip": "picture", "imagedata": "picture", "chart": "chart", "relIds": "diagram",
    "subDoc": "linked document",
}  # fmt: skip
"""What is drawn in another part, or made by another program."""
_CODES = {"chart": "charts_left_out", "embedded object": "objects_left_out"}
_GREEK = "αβχδεφγηιϕκλμνοπθρστυϖωξψζΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ"  # in the order of the font
_SYMBOLS = {
    (font, f"F0{ord(char):02X}"): sign
    for font, chars, signs in (
        ("Symbol", f"{ascii_letters}£¥®°±³´·¸¹»", f"{_GREEK}≤∞→°±≥×•÷≠≈"),  # noqa: RUF001
        ("Wingdings", "¨Jßàüýþ", "☐☺←→✓☒☑"),
    )
    for char, sign in zip(chars, signs, strict=True)
}
"""What people put in from these fonts."""
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_SIGNS = {"sym", "footnoteReference", "endnoteReference", "footnoteRef", "endnoteRef", *_SPACES}
_RAISED = {"superscript", "subscript"}
_SCRIPTS = {"sup": "^", "sub": "_"}
_EQUATIONS = frozenset({"f", "d", "nary", "rad", *_SCRIPTS})
_SEPARATORS = {"separator", "continuationSeparator", "continuationNotice"}
_NUMBERED = re.compile(r"\d{1,9}[.)]")


class _Reader:
    """Adds blocks. lxml has bounded the depth, so recursion ends."""

    def __init__(
        self, archive: Archive, styles: Styles, parts: dict[str, tuple[str, str]], unread: Counter[str], depth: int
    ) -> None:
        self.blocks: list[Passage] = []
        self.parts = parts
        self._archive = archive
        self._styles = styles
        self._unread = unread
        self._depth = depth
        self._seen: set[str] = set()  # inserted files: each is read once, however often it is named
        self._items: list[tuple[int, str]] = []  # indent and text of lines
        self._marks: dict[tuple[str, str], str] = {}  # of notes that the text refers to: kind and id -> mark
        self._mark = ""  # of the note that is being read
        self._beside: list[Element] = []  # boxes: they float beside a paragraph

    def read(self, part: Element) -> None:
        """All of a part: the document, or its notes; or of a cell."""
        self._children(part)
        self._end_list()

    def _children(self, parent: Element) -> None:
        for child in parent:
            match local_name(child):
                case name if name in _LEFT_OUT or attribute(child, "type") in _SEPARATORS:
                    pass
                case "p":
                    self._paragraph(child)
                case "tbl":
                    self._end_list()
                    self.blocks += table(self._rows(child))
                case "altChunk":
                    self._end_list()
                    self._inserted(self.parts.get(attribute(child, "id"), ("", ""))[1])
                case name if name in _UNREAD:
                    self._unread[_UNREAD[name]] += 1
                case "footnote" | "endnote" as kind:
                    self._mark = self._marks.get((kind, attribute(child, "id")), "")
                    self._children(child)
                case _:  # body, content controls, insertions
                    self._children(child)

    def _paragraph(self, paragraph: Element) -> None:
        place = self._styles.place(paragraph)
        lines = (line.strip() for line in self._text(paragraph).split("\n"))
        if text := "\n".join(line for line in lines if line):
            self._add(text, place)
        beside, self._beside = self._beside, []
        for box in beside:
            self._children(box)

    def _add(self, text: str, place: Place) -> None:
        if place.heading or place.level is None:
            self._end_list()
            text = f"{place.label} {text}" if place.label else text
            self.blocks.append(Passage("heading" if place.heading else "paragraph", text, place.heading))
            return
        marker = place.label if _NUMBERED.fullmatch(place.label) else f"- {place.label}".strip()
        first, *others = Passage("paragraph", text).markdown().split("\n")
        self._items.append((place.level, f"{marker} {first}"))
        self._items += [(place.level + 1, line) for line in others]

    def _end_list(self) -> None:
        items, self._items = self._items, []
        if items:
            least = items[0][0]  # the first one is not indented: it would be code
            lines = [f"{'  ' * max(0, level - least)}{text}" for level, text in items]
            self.blocks.append(Passage("list", "\n".join(lines)))

    def _rows(self, rows: Element) -> list[list[Cell]]:
        """Of a table."""
        found, above = list[list[Cell]](), dict[int, tuple[list[Cell], int]]()
        for row in _within(rows, "tr"):
            if row.find("{*}trPr/{*}del") is not None:
                continue
            cells, column = list[Cell](), 0
            for cell in _within(row, "tc"):
                properties = cell.find("{*}tcPr")
                merged = properties.find("{*}vMerge") if properties is not None else None
                span = value(properties, "gridSpan")
                width = int(span) if re.fullmatch("[1-9][0-9]?", span) else 1
                blocks = self._cell(cell)
                goes_on = merged is not None and attribute(merged, "val") != "restart" and not blocks
                if goes_on and column in above:
                    others, at = above[column]
                    others[at] = replace(others[at], rows=others[at].rows + 1)
                else:
                    above[column] = (cells, len(cells))
                    cells.append(Cell(blocks, width))
                column += width
            found.append(cells)
        return found

    def _cell(self, cell: Element) -> list[Passage]:
        outer, self.blocks = self.blocks, []
        beside, self._beside = self._beside, []
        self.read(cell)
        blocks, self.blocks, self._beside = self.blocks, outer, beside
        return blocks

    def _inserted(self, name: str) -> None:
        """A file within the file, which Word shows in its place."""
        if name and name in self._seen:
            return
        self._seen.add(name)
        data = read_member(self._archive, name)
        try:
            if data is None:
                raise no_text()
            self.blocks += _of_file(data, name, self._unread, self._depth + 1)
        except DocumentFailed:  # the rest of the document is read
            self._unread["inserted file"] += 1

    # ---- the text of a paragraph, equations in a line

    def _text(self, element: Element) -> str:
        parts = list[str]()
        for kind, pieces in groupby(self._pieces(element, ""), key=itemgetter(0)):
            text = "".join(piece for _, piece in pieces)
            if kind and (bare := text.strip()):
                raised = script(kind == "superscript", parts[-1][-4:] if parts else "", bare)
                text = text.replace(bare, raised, 1)
            if text:
                parts.append(text)
        return "".join(parts)

    def _pieces(self, element: Element, kind: str) -> Iterator[tuple[str, str]]:
        """Texts, and whether each stands in its line, above or below it."""
        for child in element:
            match local_name(child):
                case name if name in _LEFT_OUT:
                    pass
                case "t":
                    yield kind, child.text or ""
                case "r":
                    align = value(child, "rPr", "vertAlign")
                    yield from self._pieces(child, align if align in _RAISED else "")
                case name if name in _SIGNS:
                    yield kind, self._sign(child, name)
                case "txbxContent":
                    self._beside.append(child)
                case name if name in _EQUATIONS:
                    yield kind, self._equation(child, name)
                case name if name in _UNREAD:
                    self._unread[_UNREAD[name]] += 1
                case _:
                    yield from self._pieces(child, kind)

    def _sign(self, element: Element, name: str) -> str:
        match name:
            case "sym":
                font, char = attribute(element, "font"), attribute(element, "char").upper()
                if (font, char) not in _SYMBOLS:
                    self._unread["symbol"] += 1
                return _SYMBOLS.get((font, char), "")
            case "footnoteReference" | "endnoteReference":
                note = (name.removesuffix("Reference"), attribute(element, "id"))
                return self._marks.setdefault(note, f"[{len(self._marks) + 1}]")
            case "footnoteRef" | "endnoteRef":
                return self._mark
            case _:
                return _SPACES[name]

    def _equation(self, element: Element, name: str) -> str:
        match name:
            case "f":
                parts = element.iterchildren("{*}num", "{*}den")
                return "/".join(_grouped(self._text(part)) for part in parts)
            case "d":
                between = ", ".join(self._text(part) for part in element.iterchildren("{*}e"))
                return _character(element, "dPr/{*}begChr", "(") + between + _character(element, "dPr/{*}endChr", ")")
            case "nary":
                return _character(element, "naryPr/{*}chr", "∫") + self._text(element)
            case "rad":
                degree, base = ("".join(map(self._text, element.iterchildren(f"{{*}}{part}"))) for part in ("deg", "e"))
                return (f"√[{degree}]" if degree.strip() else "√") + _grouped(base)
            case _:
                text = _grouped(self._text(element))
                return text and _SCRIPTS[name] + text


def _character(element: Element, path: str, otherwise: str) -> str:
    found = element.find(f"{{*}}{path}")
    return otherwise if found is None else attribute(found, "val")


def _grouped(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 1 or text.isalnum() else f"({text})"


def _within(parent: Element, name: str) -> Iterator[Element]:
    """Rows of a table, or cells of a row, content controls and insertions around them left aside."""
    for child in parent:
        if local_name(child) == name:
            yield child
        elif local_name(child) in _AROUND:
            yield from _within(child, name)


def _of_file(data: bytes, name: str, unread: Counter[str], depth: int) -> list[Passage]:
    """Of an inserted file, known by its beginning, or by its name."""
    ending = posixpath.splitext(name.lower())[1]
    head = data[:_HEAD_BYTES].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n").lower()
    if head.startswith(b"pk\x03\x04") and depth <= _MAX_INSERTED:
        return _blocks(open_archive(data, _NAME), unread, depth)
    if head.startswith(b"{\\rtf"):
        return [Passage("markdown", read_rtf(data).text)]
    if ending in {".mht", ".mhtml", ".eml"} or is_mail(data[:_HEAD_BYTES]):
        return [Passage("markdown", read_mail(data).text)]
    if ending in {".htm", ".html", ".xhtml"} or b"<html" in head or head.startswith(b"<!doctype html"):
        return [Passage("markdown", read_html(data).text)]
    if ending == ".txt" or (is_plain_utf8(data) and not head.startswith(b"<")):
        return [Passage("paragraph", decode(data).strip())]
    raise no_text()
