"""DOCX: headings, paragraphs, lists and tables in the order of the document, then its notes and comments.

Read from its XML rather than through mammoth (1.13), which leaves out equations, the numbers of headings and items and
inserted files, or python-docx, which leaves out text boxes, content controls and equations too. Headers and footers
are left out: they are the same on each page.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

from tasks.document_error import DocumentFailed, DocumentWarning
from tasks.ingestion.parsing.archive import (
    Archive,
    Element,
    first_text,
    local_name,
    open_archive,
    read_member,
    read_xml,
)
from tasks.ingestion.parsing.docx_styles import Place, Styles, W, value
from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, title_of
from tasks.ingestion.parsing.html import read_html
from tasks.ingestion.parsing.html_to_markdown import Cell, Passage, markdown, script, table
from tasks.ingestion.parsing.mail import is_mail, read_mail
from tasks.ingestion.parsing.refusals import corrupt, no_text
from tasks.ingestion.parsing.rich_text import read_rtf
from tasks.ingestion.parsing.text_encoding import decode, is_plain_utf8

_NAME = "DOCX"
_DOCUMENT = "word/document.xml"
_NOTES = ("footnotes", "endnotes", "comments")
_STRICT = b"http://purl.oclc.org/ooxml/"
_TRANSITIONAL = (
    (b"wordprocessingml/main", b"wordprocessingml/2006/main"),
    (b"officeDocument/relationships", b"officeDocument/2006/relationships"),
    (b"officeDocument/math", b"officeDocument/2006/math"),
    (b"drawingml/", b"drawingml/2006/"),
)
_MAX_INSERTED = 3  # documents within each other
_FEW_CHARS = 100  # beside each picture
_HEAD_BYTES = 2048


def read_docx(data: bytes) -> Extracted:
    """Markdown; a warning says which parts were not read.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`, `missing_parser`.
    """
    unread = Counter[str]()
    archive = open_archive(data, _NAME)
    text = clean(markdown(_blocks(archive, unread, 0)))
    check_chars(len(text))
    if not text:
        raise no_text()
    if len(text) >= _FEW_CHARS * unread["picture"]:
        del unread["picture"]  # an illustration
    warnings = [_warning(unread)] if unread else []
    title = first_text(read_xml(archive, "docProps/core.xml"), "title")
    return Extracted(text, "markdown", title_of(title), warnings=warnings)


def _warning(unread: Counter[str]) -> DocumentWarning:
    parts = ", ".join(f"{count} {what}{'s' * (count > 1)}" for what, count in sorted(unread.items()))
    return DocumentWarning(
        "unread_parts",
        f"Some parts of the document were not read ({parts}): write what they say into the document as text.",
    )


def _blocks(archive: Archive, unread: Counter[str], depth: int) -> list[Passage]:
    main = _related(archive, "").of_kind("officeDocument") or _DOCUMENT
    document = _xml(archive, main)
    if document is None:
        raise corrupt(_NAME)
    related = _related(archive, main)
    parts = {name: _xml(archive, related.of_kind(name) or f"word/{name}.xml") for name in ("styles", "numbering")}
    reader = _Reader(archive, Styles(parts["styles"], parts["numbering"]), related, unread, depth)
    reader.read(document)
    for name in _NOTES:
        part = related.of_kind(name) or f"word/{name}.xml"
        if (notes := _xml(archive, part)) is not None:
            reader.related = _related(archive, part)
            reader.read(notes)
    return reader.blocks


# ---- parts and what they name ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Related:
    """The parts that a part names, by id; and the kind of each."""

    parts: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def of_kind(self, kind: str) -> str | None:
        return next((self.parts[name] for name, found in self.kinds.items() if found == kind), None)


def _related(archive: Archive, part: str) -> _Related:
    folder, name = posixpath.split(part)
    related = _Related()
    root = read_xml(archive, posixpath.join(folder, "_rels", f"{name}.rels"))
    for element in root.iter("{*}Relationship") if root is not None else ():
        target, identity = str(element.get("Target", "")), str(element.get("Id", ""))
        if element.get("TargetMode") != "External":
            path = posixpath.join("/", folder, target.replace("\\", "/"))
            related.parts[identity] = posixpath.normpath(path).lstrip("/")
            related.kinds[identity] = str(element.get("Type", "")).rpartition("/")[2]
    return related


def _xml(archive: Archive, name: str) -> Element | None:
    """A part, its names as nearly all programs write them. Strict documents differ in little else."""
    root = read_xml(archive, name)
    if root is None or not any(_STRICT.decode() in space for space in root.nsmap.values()):
        return root
    from lxml import etree  # noqa: PLC0415 - an extra

    data = etree.tostring(root)
    for strict, transitional in _TRANSITIONAL:
        data = data.replace(_STRICT + strict, b"http://schemas.openxmlformats.org/" + transitional)
    return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))


# ---- blocks ----------------------------------------------------------------------------------------------------------

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# A fallback repeats its alternative for old programs; what was deleted or moved away is no text; fields carry codes.
_LEFT_OUT = frozenset({
    _FALLBACK, f"{W}del", f"{W}moveFrom", f"{W}instrText", f"{W}delText", f"{W}pPr", f"{W}rPr", f"{W}sectPr",
    f"{W}sdtPr", f"{W}tblPr", f"{W}tblGrid",
})  # fmt: skip
_SEPARATORS = {"separator", "continuationSeparator", "continuationNotice"}
_NUMBERED = re.compile(r"\d{1,9}[.)]")


class _Reader:
    """Adds blocks. lxml has bounded the depth, so recursion ends."""

    def __init__(self, archive: Archive, styles: Styles, related: _Related, unread: Counter[str], depth: int) -> None:
        self.blocks: list[Passage] = []
        self.related = related
        self._archive = archive
        self._styles = styles
        self._unread = unread
        self._depth = depth
        self._seen: set[str] = set()  # parts: each is read once, however often it is named
        self._items: list[tuple[int, str]] = []  # indent and text of lines
        self._beside: list[Element | Passage] = []  # boxes and drawings: they float beside a paragraph

    def read(self, part: Element) -> None:
        """All of a part: the document, or its notes; or of a cell."""
        self._children(part)
        self._end_list()

    def _children(self, parent: Element) -> None:
        for child in parent:
            tag = child.tag
            if tag in _LEFT_OUT or not isinstance(tag, str) or child.get(f"{W}type") in _SEPARATORS:
                continue
            if tag == f"{W}p":
                self._paragraph(child)
            elif tag == f"{W}tbl":
                self._end_list()
                self.blocks += table(self._rows(child))
            elif tag == f"{W}altChunk":
                self._end_list()
                self._inserted(self.related.parts.get(str(child.get(f"{_R}id", "")), ""))
            elif tag == f"{W}subDoc":
                self._unread["linked document"] += 1
            else:  # body, content controls, notes, insertions
                self._children(child)

    def _paragraph(self, paragraph: Element) -> None:
        place = self._styles.place(paragraph)
        lines = (line.strip() for line in self._text(paragraph).split("\n"))
        if text := "\n".join(line for line in lines if line):
            self._add(text, place)
        beside, self._beside = self._beside, []
        for each in beside:
            if isinstance(each, Passage):
                self._end_list()
                self.blocks.append(each)
            else:
                self._children(each)

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
        for row in _within(rows, f"{W}tr"):
            if row.find(f"{W}trPr/{W}del") is not None:
                continue
            cells, column = list[Cell](), 0
            for cell in _within(row, f"{W}tc"):
                properties = cell.find(f"{W}tcPr")
                merged = properties.find(f"{W}vMerge") if properties is not None else None
                span = value(properties, "gridSpan")
                width = int(span) if re.fullmatch("[1-9][0-9]?", span) else 1
                blocks = self._cell(cell)
                goes_on = merged is not None and merged.get(f"{W}val") != "restart" and not blocks
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
            tag = child.tag
            if tag in _LEFT_OUT or not isinstance(tag, str):
                continue
            if tag in _TEXTS:
                yield kind, child.text or ""
            elif tag == f"{W}r":
                yield from self._pieces(child, _RAISED.get(value(child, "rPr", "vertAlign"), ""))
            elif tag in _SPACES:
                yield kind, _SPACES[tag]
            elif tag == f"{W}sym":
                yield kind, _symbol(child)
            elif tag == f"{W}txbxContent":
                self._beside.append(child)
            elif tag in _EQUATIONS:
                yield kind, self._equation(child)
            elif not self._is_unread(child):
                yield from self._pieces(child, kind)

    def _equation(self, element: Element) -> str:
        tag = element.tag
        if tag == f"{_M}f":
            return "/".join(_grouped(self._text(part)) for part in element if part.tag in {f"{_M}num", f"{_M}den"})
        if tag == f"{_M}d":
            begins, ends = (element.find(f"{_M}dPr/{_M}{name}") for name in ("begChr", "endChr"))
            between = ", ".join(self._text(part) for part in element.iterchildren(f"{_M}e"))
            return _character(begins, "(") + between + _character(ends, ")")
        if tag == f"{_M}nary":
            return _character(element.find(f"{_M}naryPr/{_M}chr"), "∫") + "".join(map(self._equation, element))
        if tag == f"{W}ruby":
            base, above = (element.find(f"{W}{name}") for name in ("rubyBase", "rt"))
            return "".join(self._text(part) for part in (base,) if part is not None) + "".join(
                f"({self._text(part)})" for part in (above,) if part is not None
            )
        return _SCRIPTS[tag] + _grouped(self._text(element)) if tag in _SCRIPTS else self._text(element)

    def _is_unread(self, element: Element) -> bool:
        """Notes what has no text here: what is drawn in another part, or made by another program."""
        name = local_name(element)
        if name == "object":
            self._unread["embedded object"] += 1
        elif name in {"blip", "imagedata"}:
            self._unread["picture"] += 1
        elif name in {"chart", "relIds"}:
            part = self.related.parts.get(str(element.get(f"{_R}id") or element.get(f"{_R}dm") or ""), "")
            if part in self._seen:
                return True
            self._seen.add(part)
            if texts := _drawn(read_xml(self._archive, part)):
                self._beside.append(Passage("paragraph", "\n".join(texts)))
            else:
                self._unread["chart" if name == "chart" else "diagram"] += 1
        else:
            return False
        return True


_TEXTS = frozenset({f"{W}t", f"{_M}t", f"{_A}t"})
_RAISED = {"superscript": "superscript", "subscript": "subscript"}
_SCRIPTS = {f"{_M}sup": "^", f"{_M}sub": "_", f"{_M}deg": "√"}
_EQUATIONS = frozenset({f"{_M}f", f"{_M}d", f"{_M}nary", f"{W}ruby", *_SCRIPTS})
_SPACES = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-", f"{W}ptab": "\t"}
_SYMBOLS = dict(zip(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ\xa3\xa5\xae\xb0\xb1\xb3\xb4\xb7\xb9\xbb\xd7",
    "αβχδεφγηιϕκλμνοπθρστυϖωξψζΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ≤∞→°±≥\u00d7•≠≈⋅",
    strict=True,
))  # fmt: skip
"""Of the font Symbol."""
_PRIVATE = 0xF000  # where Word places the characters of such fonts


def _symbol(symbol: Element) -> str:
    font, code = str(symbol.get(f"{W}font", "")), str(symbol.get(f"{W}char", ""))
    if not re.fullmatch("[0-9A-Fa-f]{2,5}", code):
        return ""
    number = int(code, 16)
    if font == "Symbol":
        return _SYMBOLS.get(chr(number & 0xFF), "")
    return chr(number) if number < _PRIVATE else ""  # of Wingdings and its like: pictures


def _character(element: Element | None, otherwise: str) -> str:
    return otherwise if element is None else str(element.get(f"{_M}val", ""))


def _grouped(text: str) -> str:
    text = text.strip()
    return text if len(text) == 1 or text.isalnum() else f"({text})"


def _drawn(root: Element | None) -> list[str]:
    """Texts of a diagram, or a chart's titles and names: not its numbers."""
    if root is None:
        return []
    texts = ["".join(found.text or "" for found in line.iter(f"{_A}t")) for line in root.iter(f"{_A}p")]
    names = [found.text or "" for names in root.iter("{*}strCache") for found in names.iter("{*}v")]
    return list(dict.fromkeys(text.strip() for text in [*texts, *names] if text.strip()))


def _within(parent: Element, tag: str) -> Iterator[Element]:
    """Rows of a table, or cells of a row, content controls and insertions around them left aside."""
    for child in parent:
        if child.tag == tag:
            yield child
        elif child.tag in _AROUND:
            yield from _within(child, tag)


_AROUND = frozenset(f"{W}{name}" for name in ("sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo"))


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
        paragraphs = re.split(r"\n\s*\n", decode(data))
        return [Passage("paragraph", text.strip()) for text in paragraphs if text.strip()]
    raise no_text()
