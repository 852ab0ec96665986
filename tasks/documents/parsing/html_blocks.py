"""The blocks of a page, from its elements as they begin and end."""

import re

from tasks.documents.parsing.builder import Builder
from tasks.documents.parsing.types import BlockKind, Parsed

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = frozenset({"ul", "ol", "dl", "menu"})
_ITEMS = frozenset({"li", "dt", "dd"})
_CELLS = frozenset({"td", "th"})
# Everything else goes on within its line.
_BREAKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "details",
        "dialog",
        "dir",
        "div",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hgroup",
        "hr",
        "html",
        "legend",
        "main",
        "nav",
        "option",
        "p",
        "section",
        "summary",
        "tbody",
        "tfoot",
        "thead",
    ]
)
_SPACE = re.compile(r"[ \t\n\r\f\u00a0]+")
_MAX_INDENTED = 8


class HtmlBlocks:
    """Feed it elements in the order of the page; `chars` says how much text came out.

    Lists and tables are gathered line by line and become one block at the end of the outermost of them: an item is a
    line that begins with `- `, a row a line whose cells are divided by ` | `.
    """

    def __init__(self) -> None:
        self.chars = 0
        self._builder = Builder()
        self._inline: list[str] = []
        self._lines: list[str] = []
        self._cells: list[str] = []
        self._lists = self._tables = self._pre = 0
        self._item = False
        self._heading: str | None = None

    def text(self, text: str) -> None:
        """A run of text."""
        self._inline.append(text if self._pre else _SPACE.sub(" ", text))

    def enter(self, tag: str) -> None:
        """An element begins."""
        if tag == "br":
            self._inline.append("\n")
        elif tag in {*_CELLS, "tr"} and self._tables:
            self._end_cell()
        elif tag == "pre":
            self._end_line()
            self._pre += 1
        elif self._divides(tag):
            self._end_line()
            self._lists += tag in _LISTS
            self._tables += tag == "table"
            self._item = self._item or tag in _ITEMS
            self._heading = tag if tag in _HEADINGS else self._heading

    def leave(self, tag: str) -> None:
        """It ends. Elements without content begin and end too."""
        if tag in _CELLS and self._tables:
            self._cells.append(self._taken(" "))  # an empty one too: columns stay apart
        elif tag == "pre":
            self._end_line(code=True)
            self._pre -= 1
        elif self._divides(tag):
            self._end_line()
            if tag in {"tr", "caption", "table"}:
                self._end_cell()
                self._end_row()
            self._lists -= tag in _LISTS
            self._tables -= tag == "table"
            self._item = self._item and tag not in _ITEMS
            self._heading = None if tag in _HEADINGS else self._heading
            if tag in _LISTS or tag == "table":
                self._end_gathered("table" if tag == "table" else "list")

    def end(self) -> None:
        """The page ends; every element has ended."""
        self._end_line()

    def parsed(self, media_type: str, title: str | None) -> Parsed:
        """The document; raises DocumentFailed where it is empty."""
        return self._builder.parsed(media_type, title)

    def _divides(self, tag: str) -> bool:
        return (
            tag in _BREAKS or tag in _LISTS or tag in _ITEMS or tag in _CELLS or tag in _HEADINGS
            or tag in {"table", "tr"}
        )  # fmt: skip

    def _end_line(self, *, code: bool = False) -> None:
        if self._tables:  # what divides lines elsewhere divides words in a cell
            self._inline.append(" ")
            return
        text = self._taken("\n", verbatim=code)
        if not text.strip():
            return
        if self._lists:
            indent = "  " * min(self._lists - 1, _MAX_INDENTED)
            self._lines.append(f"{indent}- {text}" if self._item else f"{indent}  {text}")
            self._item = False
        elif code:
            self._add("code", text)
        elif self._heading:
            self._add("heading", text, _HEADINGS[self._heading])
        else:
            self._add("paragraph", text)

    def _end_cell(self) -> None:
        """Of text that stands in a table and in no cell of it, or in front of a table within a cell."""
        if text := self._taken(" "):
            self._cells.append(text)

    def _end_row(self) -> None:
        cells, self._cells = self._cells, []
        if any(cells):
            self._lines.append(" | ".join(cells))

    def _end_gathered(self, kind: BlockKind) -> None:
        if self._tables or self._lists or not self._lines:
            return
        lines, self._lines = self._lines, []
        self._add(kind, "\n".join(lines))

    def _add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        self.chars += len(text)
        self._builder.add(kind, text, level)

    def _taken(self, line_end: str, *, verbatim: bool = False) -> str:
        text, self._inline = "".join(self._inline), []
        if verbatim:
            return text.strip("\r\n")
        lines = (" ".join(line.split()).strip("\u200b") for line in text.split("\n"))
        return line_end.join(line for line in lines if line)
