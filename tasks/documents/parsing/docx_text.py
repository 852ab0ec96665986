"""The text of a DOCX, element by element."""

from typing import TYPE_CHECKING

from tasks.documents.parsing.builder import Builder
from tasks.documents.parsing.docx_styles import Styles, W

if TYPE_CHECKING:
    from lxml.etree import _Element

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
