"""HTML: the main content, as blocks. Navigation, banners, scripts and hidden elements are left out.

Nodes are walked without recursion: a page may nest as deep as it likes.
"""

import re
from typing import TYPE_CHECKING

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.parsed_document import BlockKind, Builder, Parsed
from tasks.documents.parsing.refusals import missing, too_large
from tasks.documents.parsing.text_encoding import decode

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_MEDIA_TYPE = "text/html"
_NEVER = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "canvas",
        "iframe",
        "object",
        "embed",
        "audio",
        "video",
        "head",
        "select",
        "button",
        "textarea",
    ]
)
_AROUND = frozenset(["nav", "aside", "footer", "header"])
"""Elements around the content. Within the content a header holds a title, an aside a note, a footer an author."""
_CONTENT = frozenset({"main", "article", "blockquote"})
_ROLES = {"navigation", "banner", "contentinfo", "complementary", "search"}
_HIDDEN_STYLE = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_DECLARED = re.compile(rb"""<meta[^>]{0,500}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_DECLARED_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""")
_DECLARED_WITHIN = 4096
_MAIN_SHARE = 0.25
_NESTING = re.compile(
    rb"<(/?)(?:ul|ol|dl|div|table|section|article|blockquote|span|form|fieldset|details)\b", re.IGNORECASE
)
"""Elements whose end has to be written."""
_MAX_NESTED = 4000
"""The library takes time by the square of it: 6 s for 20,000 lists within each other, 0.2 s for 4,000."""


def parse_html(data: bytes) -> Parsed:
    """The main content's headings, paragraphs, lists, tables and preformatted text.

    Raises:
        DocumentFailed: `no_text`, `document_too_large`, `unknown_encoding`, `missing_parser`.
    """
    try:
        from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("selectolax") from None
    _require_flat(data)
    tree = LexborHTMLParser(decode(data, _declared(data)))
    title = tree.css_first("title")
    content = _main_content(tree)
    return content.parsed(_MEDIA_TYPE, title.text() if title is not None else None)


def _require_flat(data: bytes) -> None:
    depth = 0
    for tag in _NESTING.finditer(data.replace(b"\0", b"")):  # zero bytes: UTF-16
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        if depth > _MAX_NESTED:
            raise too_large(f"nests more than {_MAX_NESTED:,} elements within each other")


def _declared(data: bytes) -> str | None:
    head = data[:_DECLARED_WITHIN]
    declaration = _DECLARED.search(head) or _DECLARED_XML.search(head)
    return declaration[1].decode("ascii", errors="replace") if declaration else None


def _main_content(tree: "LexborHTMLParser") -> "HtmlBlocks":
    """Of `main`, or of the only `article`, unless nearly all of the text is elsewhere; else of the whole body."""
    body = tree.body
    everything = _blocks(body, all_of_it=False)
    if not everything.chars:  # a page that is nothing but a header is better than none
        return _blocks(body, all_of_it=True)
    for selector in ("main, [role=main]", "article"):
        elements = tree.css(selector)
        if len(elements) == 1:
            content = _blocks(elements[0], all_of_it=False)
            if content.chars >= _MAIN_SHARE * everything.chars:
                title = None if elements[0].css_first("h1") is not None else tree.css_first("header h1")
                return content if title is None else _blocks(elements[0], all_of_it=False, title=title.text())
    return everything


def _blocks(root: "LexborNode | None", *, all_of_it: bool, title: str | None = None) -> "HtmlBlocks":
    blocks = HtmlBlocks()
    if title is not None:
        blocks.enter("h1")
        blocks.text(title)
        blocks.leave("h1")
    open_nodes: list[LexborNode] = []
    inside = 0  # of main and article
    node = root
    while node is not None:
        below = None
        if node.is_text_node:
            blocks.text(node.text_content or "")
        elif node.is_element_node and not _is_left_out(node, all_of_it=all_of_it, inside=inside > 0):
            below = node.first_child
            blocks.enter(str(node.tag))
            if below is None:
                blocks.leave(str(node.tag))
        if below is not None:
            open_nodes.append(node)
            inside += node.tag in _CONTENT
            node = below
            continue
        following = node.next if open_nodes else None
        while following is None and open_nodes:
            ended = open_nodes.pop()
            inside -= ended.tag in _CONTENT
            blocks.leave(str(ended.tag))
            following = ended.next if open_nodes else None
        node = following
    blocks.end()
    return blocks


def _is_left_out(node: "LexborNode", *, all_of_it: bool, inside: bool) -> bool:
    tag = str(node.tag)
    if tag in _NEVER:
        return True
    attributes = node.attributes
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    if _HIDDEN_STYLE.search(attributes.get("style") or ""):
        return True
    if all_of_it:
        return False
    return (tag in _AROUND and not (inside and tag != "nav")) or attributes.get("role") in _ROLES


# ---- the blocks of a page, from its elements as they begin and end ---------------------------------------------------

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


def _is_html(start: bytes) -> bool:
    return start.startswith((b"<!doctype html", b"<html")) or (
        start.startswith((b"<?xml", b"<!--")) and b"<html" in start
    )


HTML = DocumentFormat(
    _MEDIA_TYPE, "HTML", "text", parse_html, endings=(".html", ".htm", ".xhtml", ".xht"), recognises=_is_html
)
