"""DOCX: paragraphs, headings, lists and tables in the order of the document, then its notes.

Read from its XML rather than through python-docx, whose paragraphs leave out what stands in text boxes, content
controls and equations, and which unpacks every part at once.
"""

import io
import re
import zipfile
import zlib
from typing import TYPE_CHECKING

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.parsed_document import Builder, Parsed
from tasks.documents.parsing.refusals import corrupt, missing, protected, too_large

if TYPE_CHECKING:
    from lxml.etree import _Element

_MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_DOCUMENT = "word/document.xml"
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_RELATIONSHIPS = "_rels/.rels"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def parse_docx(data: bytes) -> Parsed:
    """The document's text; tables are lines of cells divided by ` | `.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`,
            `missing_parser`.
    """
    archive = Archive(data, "DOCX")
    document = _xml(archive, _main_part(archive))
    if document is None:
        raise corrupt("DOCX")
    builder = Builder()
    blocks = DocxBlocks(builder, Styles(_xml(archive, "word/styles.xml")))
    blocks.read(document)
    for name in _NOTES:
        if (notes := _xml(archive, name)) is not None:
            blocks.read(notes)
    return builder.parsed(_MEDIA_TYPE, _title(archive))


def _main_part(archive: "Archive") -> str:
    """Nearly always the same; some programs call it otherwise and say so in the package's relationships."""
    relationships = _xml(archive, _RELATIONSHIPS)
    for relationship in relationships.iter() if relationships is not None else ():
        if str(relationship.get("Type", "")).endswith("/officeDocument"):
            return str(relationship.get("Target", "")).lstrip("/")
    return _DOCUMENT


def _title(archive: "Archive") -> str | None:
    properties = _xml(archive, "docProps/core.xml")
    title = properties.find(_TITLE) if properties is not None else None
    return title.text if title is not None else None


def _xml(archive: "Archive", name: str) -> "_Element | None":
    try:
        from lxml import etree  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("lxml") from None
    data = archive.part(name)
    if data is None:
        return None
    # Nothing is fetched and no entity is put in place, so a billion laughs stay one. lxml's own limits on depth and on
    # the length of a text stay on (huge_tree=False).
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError:
        raise corrupt("DOCX") from None
    if root.getroottree().docinfo.internalDTD is not None:  # no Office program writes one
        raise corrupt("DOCX")
    return root


# ---- parts of an Office file, unpacked with a bound: a few kilobytes of ZIP can hold petabytes -----------------------

ZIP_BEGINNINGS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
MAX_ENTRIES = 10_000
MAX_PART_BYTES = 100 * 2**20
MAX_RATIO = 200
_RATIO_FROM_BYTES = 2**20  # small parts may compress as well as they like
_ENCRYPTED = 0x1


class Archive:
    """Reads parts by name. What the file says of itself is checked before anything is unpacked, and again while it is.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`.
    """

    def __init__(self, data: bytes, format_name: str) -> None:
        self._format = format_name
        try:
            self._file = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError):
            raise corrupt(format_name) from None
        entries = self._file.infolist()
        if len(entries) > MAX_ENTRIES:
            raise too_large(f"holds {len(entries):,} parts, more than {MAX_ENTRIES:,}")
        self._entries = {entry.filename.lstrip("/"): entry for entry in entries}

    def part(self, name: str) -> bytes | None:
        """Its bytes; None: there is none of this name.

        Raises:
            DocumentFailed: as above.
        """
        entry = self._entries.get(name)
        if entry is None:
            return None
        if entry.flag_bits & _ENCRYPTED:
            raise protected(self._format)
        ratio = entry.file_size / max(1, entry.compress_size)
        if entry.file_size > MAX_PART_BYTES or (entry.file_size > _RATIO_FROM_BYTES and ratio > MAX_RATIO):
            raise too_large(f"would unpack to {entry.file_size:,} bytes from {entry.compress_size:,}, as bombs do")
        try:
            with self._file.open(entry) as part:
                data = part.read(MAX_PART_BYTES + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError):
            raise corrupt(self._format) from None
        if len(data) > MAX_PART_BYTES:
            raise too_large(f"unpacks to more than {MAX_PART_BYTES:,} bytes")
        return data


# ---- styles: which of them are headings, and which are lists ---------------------------------------------------------

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_VALUE = f"{W}val"
_HEADING = re.compile(r"heading ([1-9])")
_MAX_LEVEL = 6
_MAX_BASES = 20  # a style is based on another one, and a damaged one on itself


class Styles:
    """Looks styles up by id. Their names are English in every language of Word; their ids are not."""

    def __init__(self, styles: "_Element | None") -> None:
        self._levels: dict[str, int] = {}
        self._lists: set[str] = set()
        self._bases: dict[str, str] = {}
        for style in styles.iter(f"{W}style") if styles is not None else ():
            self._learn(style)

    def level(self, paragraph: "_Element") -> int:
        """Of a heading, 1 to 6; 0: it is none."""
        properties = paragraph.find(f"{W}pPr")
        if properties is None:
            return 0
        if level := _outline(properties):
            return level
        return next((self._levels[style] for style in self._styles(properties) if style in self._levels), 0)

    def is_item(self, paragraph: "_Element") -> bool:
        """Whether it has a bullet or a number."""
        properties = paragraph.find(f"{W}pPr")
        if properties is None:
            return False
        if (numbers := properties.find(f"{W}numPr")) is not None:
            return _value(numbers.find(f"{W}numId")) != "0"
        return any(style in self._lists for style in self._styles(properties))

    def _learn(self, style: "_Element") -> None:
        identity = str(style.get(f"{W}styleId", ""))
        name = _value(style.find(f"{W}name")).lower()
        properties = style.find(f"{W}pPr")
        if heading := _HEADING.fullmatch(name):
            self._levels[identity] = min(int(heading[1]), _MAX_LEVEL)
        elif name == "title":
            self._levels[identity] = 1
        elif properties is not None and (level := _outline(properties)):
            self._levels[identity] = level
        if name.startswith("list") or (properties is not None and properties.find(f"{W}numPr") is not None):
            self._lists.add(identity)
        self._bases[identity] = _value(style.find(f"{W}basedOn"))

    def _styles(self, properties: "_Element") -> list[str]:
        styles: list[str] = []
        style = _value(properties.find(f"{W}pStyle"))
        while style and len(styles) < _MAX_BASES:
            styles.append(style)
            style = self._bases.get(style, "")
        return styles


def _outline(properties: "_Element") -> int:
    value = _value(properties.find(f"{W}outlineLvl"))
    return int(value) + 1 if value in {"0", "1", "2", "3", "4", "5"} else 0  # 9 is body text


def _value(element: "_Element | None") -> str:
    return str(element.get(_VALUE, "")) if element is not None else ""


# ---- the text, element by element ------------------------------------------------------------------------------------

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# A fallback repeats its alternative for old programs; what was deleted or moved away is no text; fields carry codes.
_LEFT_OUT = {_FALLBACK, f"{W}del", f"{W}moveFrom", f"{W}instrText", f"{W}delText", f"{W}pPr", f"{W}rPr", f"{W}sectPr"}
_SEPARATORS = {"separator", "continuationSeparator", "continuationNotice"}
_SCRIPTS = {f"{_M}sup": "^", f"{_M}sub": "_", f"{_M}deg": "√"}
_SPACES = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-", f"{W}ptab": "\t"}


class DocxBlocks:
    """Adds blocks to a builder. The parser has bounded the depth, so recursion over tables and boxes ends."""

    def __init__(self, builder: Builder, styles: Styles) -> None:
        self._builder = builder
        self._styles = styles
        self._items: list[str] = []

    def read(self, part: "_Element") -> None:
        """All of a part: the document, or its notes."""
        self._children(part)
        self._end_list()

    def _children(self, parent: "_Element") -> None:
        for child in parent:
            tag = child.tag
            if tag in _LEFT_OUT or not isinstance(tag, str) or child.get(f"{W}type") in _SEPARATORS:
                continue
            if tag == f"{W}p":
                self._paragraph(child)
            elif tag == f"{W}tbl":
                self._end_list()
                self._builder.add("table", "\n".join(_rows(child)))
            else:  # body, content controls, notes, insertions
                self._children(child)

    def _paragraph(self, paragraph: "_Element") -> None:
        boxes: list[_Element] = []
        text = _text(paragraph, boxes).strip()
        if text:
            level = self._styles.level(paragraph)
            if not level and self._styles.is_item(paragraph):
                self._items.append(f"- {text}")
            else:
                self._end_list()
                self._builder.add("heading" if level else "paragraph", text, level)
        for box in boxes:  # text boxes float beside the paragraph that they are tied to
            self._children(box)

    def _end_list(self) -> None:
        items, self._items = self._items, []
        if items:
            self._builder.add("list", "\n".join(items))


def _text(element: "_Element", boxes: "list[_Element]") -> str:
    """Of a paragraph, equations in a line; boxes in it are collected instead."""
    parts: list[str] = []
    for child in element:
        tag = child.tag
        if tag in _LEFT_OUT or not isinstance(tag, str):
            continue
        if tag in {f"{W}t", f"{_M}t"}:
            parts.append(child.text or "")
        elif tag in _SPACES:
            parts.append(_SPACES[tag])
        elif tag == f"{W}txbxContent":
            boxes.append(child)
        elif tag == f"{_M}f":
            parts.append(_fraction(child, boxes))
        elif tag in _SCRIPTS:
            parts.append(_SCRIPTS[tag] + _grouped(_text(child, boxes)))
        else:
            parts.append(_text(child, boxes))
    return "".join(parts)


def _fraction(fraction: "_Element", boxes: "list[_Element]") -> str:
    numerator, denominator = fraction.find(f"{_M}num"), fraction.find(f"{_M}den")
    return "/".join(_grouped(_text(part, boxes)) for part in (numerator, denominator) if part is not None)


def _grouped(text: str) -> str:
    text = text.strip()
    return text if len(text) == 1 or text.isalnum() else f"({text})"


def _rows(table: "_Element") -> list[str]:
    rows = []
    for row in table.iter(f"{W}tr"):
        if next(row.iterancestors(f"{W}tbl")) is not table:
            continue  # of a table within a cell: its text is in that cell
        cells = [_cell(cell) for cell in row.iter(f"{W}tc") if next(cell.iterancestors(f"{W}tr")) is row]
        if any(cells):
            rows.append(" | ".join(cells))
    return rows


def _cell(cell: "_Element") -> str:
    paragraphs = (p for p in cell.iter(f"{W}p") if next(p.iterancestors(_FALLBACK), None) is None)
    texts = [_text(paragraph, []) for paragraph in paragraphs]  # boxes come by themselves
    return " ".join(" ".join(texts).split())


def _is_docx(data: bytes) -> bool:
    # Names of entries are not compressed. What is no DOCX after all fails in the parser, in another process.
    other = (b"mimetypeapplication/epub+zip", b"mimetypeapplication/vnd.oasis.opendocument")
    return (
        data.startswith(ZIP_BEGINNINGS)
        and not any(kind in data[:200] for kind in other)
        and b"[Content_Types].xml" in data
        and b"word/" in data
    )


DOCX = DocumentFormat(_MEDIA_TYPE, "DOCX", "binary", parse_docx, endings=(".docx",), recognises=_is_docx)
