"""Elements and texts of a page, as they come, as blocks of Markdown; and how Markdown is written.

A list is one block, an item of it a line; paragraphs of an item are further lines. A table has a row of rules. What is
a table only to place things, is what its cells hold.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tasks.ingestion.parsing.extracted import check_chars
from tasks.ingestion.parsing.markdown_table import markdown_table

BlockKind: TypeAlias = Literal["heading", "paragraph", "list", "table", "code", "markdown"]

# What the scanner of Markdown would take for a heading, for what makes one of the line above, or for a fence.
_MARK = re.compile(r"^( {0,3}+)(?=#{1,6}+(?:[ \t]|$)|(?:=++|-++)[ \t]*+$|`{3}|~{3})", re.MULTILINE)
_MAX_COLUMNS = 100
_MAX_CELL_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document.

    Attributes:
        text: Markdown, but for the words of a heading or a paragraph and the lines of code.
        level: of a heading, 1 to 6.
        language: of code.
        words: of a table, without its lines.
    """

    kind: BlockKind
    text: str = field(repr=False)
    level: int = 0
    language: str = ""
    words: str = field(default="", repr=False)

    def markdown(self) -> str:
        """As it is written, on one line or several."""
        if self.kind == "heading":
            return f"{'#' * self.level} {' '.join(self.text.split())}"
        if self.kind == "code":
            fence = "`" * max(3, 1 + max(map(len, re.findall("`{3,}", self.text)), default=0))
            return f"{fence}{self.language}\n{self.text}\n{fence}"
        return without_marks(self.text) if self.kind == "paragraph" else self.text


def without_marks(text: str) -> str:
    """Plain text as Markdown, in which no line is a heading or a fence."""
    return _MARK.sub(r"\1\\", text)


def markdown(blocks: Sequence[Passage]) -> str:
    """A text of these blocks."""
    return "\n\n".join(block.markdown() for block in blocks)


@dataclass(frozen=True, slots=True)
class Cell:
    """Of a table, with its blocks; it is as wide and as high as so many others."""

    blocks: Sequence[Passage] = ()
    columns: int = 1
    rows: int = 1

    @property
    def words(self) -> str:
        """On one line."""
        return " ".join(" ".join((block.words or block.text).split()) for block in self.blocks)


def table(rows: Sequence[Sequence[Cell]]) -> list[Passage]:
    """A block of a table, or those of its cells if the table is there only to place them.

    Raises:
        DocumentFailed: `document_too_large`.
    """
    blocks = [block for row in rows for cell in row for block in cell.blocks]
    places_only = max(map(len, rows), default=0) <= 1 or any(
        block.kind in {"heading", "code"} or len(block.text) > _MAX_CELL_CHARS for block in blocks
    )
    if places_only or not blocks:
        return blocks
    grid = _grid(rows)
    return [Passage("table", markdown_table(grid), words=" ".join(cell for row in grid for cell in row if cell))]


def _grid(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """The words of each place. What spans columns stands in the first of them, what spans rows in each of them."""
    grid = list[list[str]]()
    above = dict[int, tuple[str, int]]()  # column -> words, rows that are left
    chars = 0
    for cells in rows:
        row = list[str]()
        for cell in [*cells, None]:
            while len(row) in above:
                words, left = above.pop(len(row))
                if left > 1:
                    above[len(row)] = (words, left - 1)
                row.append(words)
            if cell is None:
                break
            spanned = [cell.words] + [""] * min(cell.columns - 1, max(0, _MAX_COLUMNS - len(row)))
            if cell.rows > 1 and len(row) < _MAX_COLUMNS:
                above |= {len(row) + at: (words, cell.rows - 1) for at, words in enumerate(spanned)}
            row += spanned
        chars += sum(map(len, row)) + len(row)
        check_chars(chars)
        grid.append(row)
    return grid


# ---- elements as they begin and end ----------------------------------------------------------------------------------

HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = frozenset({"ul", "ol", "dl", "menu", "dir"})
_ITEMS = frozenset({"li", "dt", "dd"})
_CELLS = frozenset({"td", "th", "caption"})
_CODE = frozenset({"pre", "listing", "xmp"})
_DIVIDER_TAGS = (
    "address article aside blockquote body center details dialog fieldset figcaption figure footer form frameset "
    "header hgroup hr html legend main nav p search section tbody tfoot thead"
)
_DIVIDERS = frozenset(_DIVIDER_TAGS.split())
"""They end a line, and nothing else."""
BLOCKS = frozenset({*HEADINGS, *_LISTS, *_ITEMS, *_CELLS, *_CODE, *_DIVIDERS, "div", "summary", "table", "tr"})
"""Everything else goes on within its line."""
_MAX_INDENT = 16
_MAX_TABLES = 8  # within each other; each of them takes the text of those within it once more
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight(?:-source)?)-([\w+#.]+)")
_NATURAL = re.compile("[0-9]{1,8}")
_NO_LANGUAGES = frozenset({"default", "none", "text", "plaintext", "plain"})
_ELEMENT_SYMBOL = re.compile(r"(?:[^a-z]|^)(?:[A-Z][a-z]?\)?|[\])])$")
_ORDINAL = re.compile(r"(?:st|nd|rd|th|er|re|ère|ème)", re.IGNORECASE)
_ONE = re.compile(r"[-+\u2212\u2013]?[^\W_]+(?:[.,]\d+)?[-+\u2212]?")
_BETWEEN = {"msup": "^", "msub": "_", "mover": "^", "munder": "_", "mfrac": "/", "msubsup": "_^", "munderover": "_^"}


@dataclass(slots=True)
class _List:
    indent: int
    number: int | None  # of its last item; None: it has bullets
    content: int = 0  # where the content of its last item begins
    marker: str = ""  # not yet written


@dataclass(slots=True)
class _Flow:
    """Blocks one below the other: the page, or a cell of a table."""

    blocks: list[Passage] = field(default_factory=list)
    lists: list[_List] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


class MarkdownWriter:
    """Feed it elements and texts in the order of the page; `blocks` is what came out."""

    def __init__(self) -> None:
        self._flows = [_Flow()]
        self.blocks = self._flows[0].blocks
        self._tables: list[list[list[Cell]]] = []
        self._spans: list[Mapping[str, str]] = []  # attributes of the cells that are open
        self._inline: list[str] = []
        self._heading = self._below = self._pre = self._links = self._deep = 0
        self._language = ""
        self._script: tuple[str, int] | None = None
        self._noted = False
        self._math: list[Iterator[str]] = []  # of open elements of an equation: what stands before their children

    def position(self) -> int:
        """How many blocks there are; 0 within a list or a table, whose block does not end here."""
        self._end_line()
        return 0 if self._tables or self._flows[0].lists else len(self.blocks)

    def end(self) -> None:
        """The page ends; every element has ended."""
        self._end_line()

    def text(self, text: str) -> None:
        """A run of text, without character references."""
        if self._pre:
            self._inline.append(text.replace("\u00a0", " "))
        elif not self._math or not text.isspace():
            self._inline.append(text.replace("\n", " "))

    def enter(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        if self._math:
            self._inline.append(next(self._math[-1], ""))
        if self._math or tag == "math":
            self._math.append(iter(["", *_BETWEEN.get(tag, "")]))
        if tag in _DIVIDERS:
            self._end_line()
        elif tag in BLOCKS:
            self._enter_block(tag, attributes)
        elif tag == "br":
            self._inline.append("\n")
        elif tag == "a":
            self._links += 1
            self._noted = True
        elif tag in {"sup", "sub"} and self._script is None:
            self._script = (tag, len(self._inline))
            self._noted = self._links > 0 or "note" in attributes.get("role", "") + attributes.get("class", "")
        elif tag == "code" and self._pre:
            self._language = self._language or _language(attributes)

    def leave(self, tag: str) -> None:
        """It ends. Elements without content begin and end too."""
        if self._math:
            self._math.pop()
        if tag in _DIVIDERS:
            self._end_line()
        elif tag in BLOCKS:
            self._leave_block(tag)
        elif tag == "a":
            self._links -= 1
        elif self._script and self._script[0] == tag:
            self._end_script()

    def _enter_block(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._end_line()
        if tag in HEADINGS:
            self._heading = HEADINGS[tag]
        elif tag == "summary":  # what it opens is below it
            self._heading = min(self._below + 1, len(HEADINGS))
        elif tag in _CODE:
            self._pre += 1
            self._language = _language(attributes) or self._language
        elif tag == "table" or (self._tables and not self._deep and tag in {"tr", *_CELLS}):
            self._enter_table(tag, attributes)
        elif tag == "div" and "highlight-" in attributes.get("class", ""):
            self._language = _language(attributes)
        elif tag in _LISTS:
            self._enter_list(tag, attributes)
        elif tag in _ITEMS:
            self._enter_item(tag, attributes)

    def _enter_table(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "table" and (self._pre or self._deep or len(self._tables) == _MAX_TABLES):
            self._deep += 1
        elif tag == "table":
            self._tables.append([])
        elif tag == "tr":
            self._tables[-1].append([])
        else:
            self._flows.append(_Flow())
            self._spans.append(attributes)

    def _leave_block(self, tag: str) -> None:
        if tag in _CODE and self._pre == 1:
            self._end_code()
        self._end_line()
        if tag in HEADINGS or tag == "summary":
            self._below = self._heading if tag in HEADINGS else self._below
            self._heading = 0
        elif tag in _CODE:
            self._pre -= 1
        elif tag in _LISTS:
            self._leave_list()
        elif tag == "table" and self._deep:
            self._deep -= 1
        elif tag == "table" and not self._pre:
            for block in table(self._tables.pop()):
                self._place(block)
        elif tag in _CELLS and self._tables and not self._deep:
            self._leave_cell(tag)

    def _leave_cell(self, tag: str) -> None:
        blocks, attributes = self._flows.pop().blocks, self._spans.pop()
        if tag == "caption":
            for block in blocks:
                self._place(block)
            return
        rows = self._tables[-1] or [[]]
        self._tables[-1] = rows
        rows[-1].append(Cell(blocks, *(max(1, _natural(attributes, name, 1)) for name in ("colspan", "rowspan"))))

    def _enter_list(self, tag: str, attributes: Mapping[str, str]) -> None:
        lists = self._flows[-1].lists
        first = _natural(attributes, "start", 1)
        indent = min(lists[-1].content, _MAX_INDENT) if lists else 0
        lists.append(_List(indent, first - 1 if tag == "ol" else None, indent + 2))

    def _enter_item(self, tag: str, attributes: Mapping[str, str]) -> None:
        lists = self._flows[-1].lists
        if not lists or tag == "dd":  # what a term means goes on below it
            return
        here = lists[-1]
        if here.number is not None:
            here.number = _natural(attributes, "value", here.number + 1)
        here.marker = "- " if here.number is None else f"{here.number}. "
        here.content = here.indent + len(here.marker)

    def _leave_list(self) -> None:
        flow = self._flows[-1]
        if flow.lists:
            flow.lists.pop()
        if not flow.lists and flow.lines:
            lines, flow.lines = flow.lines, []
            flow.blocks.append(Passage("list", "\n".join(lines).lstrip(" ")))

    def _end_script(self) -> None:
        kind, at = self._script or ("", 0)
        text = " ".join("".join(self._inline[at:]).split())
        base = "".join(self._inline[max(0, at - 3) : at])[-4:]
        del self._inline[at:]
        self._script = None
        if text:
            self._inline.append(" " + text if self._noted and base else script(kind == "sup", base, text))

    def _end_code(self) -> None:
        lines = "".join(self._inline).split("\n")
        self._inline, self._script = [], None
        text = "\n".join(line.rstrip() for line in lines).strip("\n")
        if text.strip():
            language = "" if self._language in _NO_LANGUAGES else self._language
            self._place(Passage("code", text, language=language))
        self._language = ""

    def _end_line(self) -> None:
        if self._pre:  # what divides lines
            if self._inline and not self._inline[-1].endswith("\n"):
                self._inline.append("\n")
            return
        if not self._inline:
            return
        lines = [" ".join(line.split()) for line in "".join(self._inline).split("\n")]
        self._inline, self._script = [], None
        text = re.sub("\n{2,}", "\n\n", "\n".join(lines)).strip("\n")
        if text:
            self._place(Passage("heading" if self._heading else "paragraph", text, self._heading))

    def _place(self, block: Passage) -> None:
        flow = self._flows[-1]
        if not flow.lists:
            flow.blocks.append(block)
            return
        here = flow.lists[-1]
        text = Passage("paragraph", block.text) if block.kind == "heading" else block
        lines = [line for line in text.markdown().split("\n") if line or block.kind == "code"]
        prefix = " " * here.content
        marker, here.marker = " " * here.indent + here.marker if here.marker else prefix, ""
        if block.kind == "code" and marker != prefix:  # a fence opens at the beginning of a line
            flow.lines.append(marker.rstrip())
            marker = prefix
        flow.lines += [f"{marker}{lines[0]}", *(prefix + line if line else "" for line in lines[1:])]


def script(raised: bool, base: str, text: str) -> str:
    """What stands above or below its line, behind `base`: 10^6, x_1; but H2O and 1st."""
    if not base.strip() or base[-1].isspace() or not text[0].isascii():
        return text
    if raised and base[-1].isdigit() and _ORDINAL.fullmatch(text):
        return text
    if not raised and text.isdigit() and _ELEMENT_SYMBOL.search(base):
        return text
    if raised and text[0] in "[(*":
        return " " + text
    return ("^" if raised else "_") + (text if _ONE.fullmatch(text) else f"({text})")


def _language(attributes: Mapping[str, str]) -> str:
    found = _LANGUAGE.search(attributes.get("class", ""))
    return found[1] if found else ""


def _natural(attributes: Mapping[str, str], name: str, otherwise: int) -> int:
    number = attributes.get(name, "").strip()
    return int(number) if _NATURAL.fullmatch(number) else otherwise
