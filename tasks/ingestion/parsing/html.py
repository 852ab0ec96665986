"""HTML: the main content as Markdown. Navigation, banners, scripts and other things around the content are left out.

Our own reading of the tags rather than a tree. selectolax (lexbor, 1.0) does what browsers do, and takes time by the
square of a page of `<main>` or `<div><table><td></div></table>`, or of the attributes of one tag. A count of open
elements that cannot be fooled has to follow the rules of its parser, so it is a parser. This one takes time by the
length of a page, however it is made.

What differs from a browser, on purpose:

* An element that is written as empty is empty, as in XML: `<title/>`, `<script/>` and `<div/>` swallow nothing.
* Blocks that are hidden, be it by `hidden`, `aria-hidden` or `display: none`, are read: the answer of an accordion, a
  tab, a page that a script will show. Left out are hidden pieces of a line (icons, anchors), and hidden dialogs, menus
  and their like, known by their role or by the names of their classes.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean, joined, title_of
from tasks.ingestion.parsing.html_to_markdown import BLOCKS, HEADINGS, MarkdownWriter, Passage, markdown
from tasks.ingestion.parsing.text_encoding import decode

_DECLARED = re.compile(rb"""<meta[^>]{0,500}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_DECLARED_XML = re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""")
_DECLARED_WITHIN = 4096
_MAIN_SHARE = 0.25


def read_html(data: bytes) -> Extracted:
    """The main content's headings, paragraphs, lists, tables and preformatted text.

    Raises:
        DocumentFailed: `no_text`, `document_too_large`, `unknown_encoding`, `missing_parser`.
    """
    text, title = html_to_markdown(decode(data, declared_charset(data)))
    return joined([text], title)


def html_to_markdown(markup: str, *, all_of_it: bool = False) -> tuple[str, str | None]:
    """The main content of a page or of a piece of one, or what stands around it too; and its title. "" without text.

    Raises:
        DocumentFailed: `document_too_large`.
    """
    page = _Page(all_of_it=all_of_it)
    page.read(markup)
    text = page.main_content()
    if not text and page.left_out_something:  # a page that is nothing but a header is better than none
        page = _Page(all_of_it=True)
        page.read(markup)
        text = page.main_content()
    check_chars(len(text))
    return text, title_of(page.title)


def declared_charset(data: bytes) -> str:
    """What a page says of its bytes; empty if it does not. UTF-16 could not have been read as far as this."""
    head = data[:_DECLARED_WITHIN]
    declaration = _DECLARED.search(head) or _DECLARED_XML.search(head)
    name = declaration[1].decode("ascii", errors="replace") if declaration else ""
    return "" if name.lower().startswith("utf-16") else name


# ---- tags and texts, in the order of the page ------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
      | <!\[CDATA\[(?P<literal>.*?)(?:\]\]>|\Z)
      | <(?P<end>/?)(?P<tag>[a-zA-Z][^\s/>]*+)
        (?P<attributes>(?: [^>=/]++ | /(?!>) | =\s*+(?:"[^"]*+"? | '[^']*+'? | [^\s>"'][^\s>]*+)?+ )*+)
        (?P<empty>/?)>?
      | <[!?/][^>]*+>?""",
    re.DOTALL | re.VERBOSE,
)
"""No way back in it, and it always succeeds: what does not end, ends with the page."""
_ATTRIBUTE = re.compile(r"""([^\s=/>"']+)(?:\s*+=\s*+(?:"([^"]*+)"?|'([^']*+)'?|([^\s>]*+)))?+""")
_TELLING = re.compile(
    r"hidden|role|display|visib|span|start|value|lang|note|highlight|aria-|accord|collap|toggle|faq",
    re.IGNORECASE,
)
"""In attributes that mean something here; those of most tags do not."""
_UNPARSED = frozenset({"script", "style", "textarea", "title", "iframe", "noscript", "noembed", "noframes", "xmp"})
_UNPARSED_ENDS = {tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE) for tag in _UNPARSED}
_EMPTY = "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
_VOID = frozenset(_EMPTY.split())


class _Tag(NamedTuple):  # made quicker than a dataclass, and there are a million
    name: str
    begins: bool
    ends: bool
    attributes: str


def _tokens(markup: str) -> Iterator[_Tag | str]:
    """Tags, and texts without character references; a title is the text between its tags."""
    at = 0
    while found := _TOKEN.search(markup, at):
        start, end = found.span()
        if start > at:
            yield _unescaped(markup[at:start])
        at = end
        literal, closing, name, attributes, empty = found.groups()
        if name is None:
            if literal:
                yield clean(literal)
            continue
        name = name.lower()
        if closing:
            yield _Tag(name, False, True, "")
            continue
        ends = bool(empty) or name in _VOID
        yield _Tag(name, True, ends, attributes)
        if name in _UNPARSED and not ends:
            close = _UNPARSED_ENDS[name].search(markup, at)
            start, at = at, close.start() if close else len(markup)
            if name in {"title", "xmp"}:
                yield _unescaped(markup[start:at])
    yield _unescaped(markup[at:])


def _unescaped(text: str) -> str:
    return clean(unescape(text)) if "&" in text else text


def _parsed(attributes: str) -> dict[str, str]:
    if not _TELLING.search(attributes):
        return {}
    parsed = dict[str, str]()
    for name, *values in _ATTRIBUTE.findall(attributes):
        parsed.setdefault(name.lower(), unescape("".join(values)))
    return parsed


# ---- which elements are open, and which of them are content ----------------------------------------------------------

_NOT_TEXT = (
    "script style noscript template svg canvas iframe object embed audio video select textarea noembed noframes title "
    "datalist annotation annotation-xml rt rp"
)
_NEVER = frozenset(_NOT_TEXT.split())
_AROUND = frozenset({"aside", "footer", "header"})
_OFTEN_LEFT_OUT = _NEVER | _AROUND | {"nav", "button"}
_CONTENT = frozenset({"main", "article", "section", "blockquote"})
_ROLES = frozenset({"navigation", "banner", "contentinfo", "complementary", "search"})
_PANELS = frozenset({"tabpanel", "region"})
_POPUPS = frozenset({"dialog", "alertdialog", "alert", "status", "tooltip", "progressbar"})
_UNSEEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_NO_PANEL = re.compile(
    r"modal|popup|popover|overlay|cookie|consent|lightbox|dropdown|menu|tooltip|toast|loading|spinner|banner|\bads?\b",
    re.IGNORECASE,
)
_OPENER = re.compile(r"accordion|collaps|toggle|faq", re.IGNORECASE)
_LABELS = frozenset({*HEADINGS, "summary", "dt", "th", "legend"})
"""What a button in them says is a heading; other buttons are for hands."""

_TABLE_PARTS = frozenset({"caption", "col", "colgroup", "tbody", "thead", "tfoot", "tr", "td", "th"})
_WALLS = frozenset({"table", "td", "th", "caption", "template", "object"})
"""An end tag within them ends nothing outside of them."""
_ROWS = ("tr", "td", "th", "caption")
_ENDED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BLOCKS, ("p",)),
    **dict.fromkeys(HEADINGS, ("p", *HEADINGS)),
    "li": ("p", "li"),
    **dict.fromkeys(("dt", "dd"), ("p", "dt", "dd")),
    **dict.fromkeys(("td", "th"), ("td", "th", "caption")),
    "tr": _ROWS,
    **dict.fromkeys(("tbody", "thead", "tfoot"), (*_ROWS, "tbody", "thead", "tfoot")),
    "button": ("button",),
}
"""Tag -> what it ends where it begins."""
_KEPT_BY = {
    "li": ("ul", "ol", "menu", "dir"),
    **dict.fromkeys(("dt", "dd"), ("dl",)),
}
"""Unless one of these has been opened since."""
_KNOWN = frozenset({
    *BLOCKS, *_NEVER, *_ENDED_BY, *_TABLE_PARTS, "a", "br", "code", "math", "ruby", "sub", "sup", "html", "body", "head"
})  # fmt: skip


class _Page:
    def __init__(self, *, all_of_it: bool) -> None:
        self.title: str | None = None
        self._all = all_of_it
        self._writer = MarkdownWriter()
        self._open: list[tuple[str, str]] = []  # a tag, and as what it is written
        self._where: defaultdict[str, list[int]] = defaultdict(list)  # places of a tag in `_open`
        self._walls = [-1]  # places too
        self._blocks = [-1]
        self._labels = 0  # how many are open
        self._left_out: int | None = None  # the place of the outermost element that is
        self.left_out_something = False
        self._headline = ""
        self._begun: dict[int, tuple[str, int]] = {}
        self._spans: dict[str, list[tuple[int, int]]] = {"main": [], "article": []}

    def read(self, markup: str) -> None:
        """The whole page, once."""
        for token in _tokens(markup):
            if isinstance(token, str):
                if self._left_out is None:
                    self._writer.text(token)
                else:
                    self._left_out_text(token)
            elif token.begins:
                self._begin(token)
            else:
                self._end(token.name)
        self._pop_to(0)
        self._writer.end()

    def main_content(self) -> str:
        """Of `main`, or of the only `article`, unless nearly all of the text is elsewhere; else of the whole page."""
        blocks = self._writer.blocks
        chars = [len(block.text) for block in blocks]
        for spans in self._spans.values():
            start, end = spans[0] if len(spans) == 1 and not self._all else (0, 0)
            if sum(chars[start:end]) >= max(1, _MAIN_SHARE * sum(chars)):
                blocks = blocks[start:end]
                break
        headline = " ".join(self._headline.split())
        titled = not headline or not blocks or any(block.level == 1 for block in blocks)
        return markdown([*([] if titled else [Passage("heading", headline, 1)]), *blocks])

    def _left_out_text(self, text: str) -> None:
        if self._open[-1][0] == "title":
            if self.title is None and not self._where["svg"]:
                self.title = text
        elif self._where["h1"] and self._where["header"]:  # a title that stands outside of the content
            self._headline += text

    def _begin(self, tag: _Tag) -> None:
        name = tag.name
        telling = bool(tag.attributes) and _TELLING.search(tag.attributes) is not None
        if name not in _KNOWN and not telling and not self._where["math"] and not self._where[name]:
            return  # of a piece of a line; nor does its end mean anything
        self._make_way(name)
        if name in {"html", "body", "head"}:
            return
        if name in _TABLE_PARTS and not self._where["table"]:
            name = "div"
        attributes = _parsed(tag.attributes) if telling else {}
        role = attributes.get("role")
        written = _heading_of_role(attributes) if role == "heading" else name
        if name == "button" and not self._labels:
            written = "div"
        place = len(self._open)
        if self._left_out is None:
            if (attributes or name in _OFTEN_LEFT_OUT) and self._is_left_out(name, attributes):
                self._left_out = place
                self.left_out_something = True
            else:
                self._writer.enter(written, attributes)
                if name in self._spans or role == "main":
                    self._begun[place] = ("main" if role == "main" else name, self._writer.position())
        self._push(name, written)
        if tag.ends:
            self._pop_to(place)

    def _make_way(self, name: str) -> None:
        for other in _ENDED_BY.get(name, ()):
            if self._where[other] and self._where[other][-1] > self._limit(name):
                self._pop_to(self._where[other][-1])

    def _push(self, name: str, written: str) -> None:
        place = len(self._open)
        self._open.append((name, written))
        self._labels += written in _LABELS
        self._where[name].append(place)
        if name in BLOCKS:
            self._blocks.append(place)
        if name in _WALLS:
            self._walls.append(place)

    def _limit(self, name: str) -> int:
        """The place of the innermost element within which `name` begins or ends nothing outside."""
        if name in _TABLE_PARTS:
            return self._last("table")
        if name == "table":
            return -1
        return max(self._walls[-1], *map(self._last, _KEPT_BY.get(name, ())), -1)

    def _end(self, name: str) -> None:
        if name in HEADINGS:  # whichever it is
            name = max(HEADINGS, key=self._last)
        place = self._last(name)
        if place < 0:
            if name in {"p", "br"} and self._left_out is None:
                self._writer.enter(name, {})
            return
        limit = self._limit(name) if name in _KNOWN else max(self._walls[-1], self._blocks[-1])
        if place >= limit:
            self._pop_to(place)

    def _pop_to(self, place: int) -> None:
        while len(self._open) > place:
            name, written = self._open.pop()
            at = len(self._open)
            self._where[name].pop()
            self._labels -= written in _LABELS
            if self._blocks[-1] == at:
                self._blocks.pop()
            if self._walls[-1] == at:
                self._walls.pop()
            if self._left_out is None:
                self._writer.leave(written)
                if begun := self._begun.pop(at, None):
                    kind, start = begun
                    self._spans[kind].append((start, self._writer.position()))
            elif self._left_out == at:
                self._left_out = None

    def _last(self, name: str) -> int:
        places = self._where[name]
        return places[-1] if places else -1

    def _is_left_out(self, name: str, attributes: dict[str, str]) -> bool:
        if name in _NEVER or (name == "button" and not self._is_told(attributes)):
            return True
        if attributes and _is_hidden(name, attributes):
            return True
        if self._all:
            return False
        # Further in, a header holds a title and an aside a note; but a page's footer often stands there too.
        within = self._open if name != "footer" else any(self._where[each] for each in _CONTENT)
        around = name in _AROUND and not within
        return around or name == "nav" or attributes.get("role") in _ROLES

    def _is_told(self, attributes: dict[str, str]) -> bool:
        """Whether a button is the heading of something that it opens."""
        return (
            self._labels > 0
            or not attributes.keys().isdisjoint({"aria-expanded", "aria-controls"})
            or attributes.get("role") == "tab"
            or _OPENER.search(attributes.get("class", "")) is not None
        )


def _is_hidden(name: str, attributes: dict[str, str]) -> bool:
    """Hidden, and no block that somebody may open to read it."""
    if not (
        "hidden" in attributes or attributes.get("aria-hidden") == "true" or _UNSEEN.search(attributes.get("style", ""))
    ):
        return False
    role = attributes.get("role")
    if role in _POPUPS or name == "dialog" or (name not in BLOCKS and "-" not in name):
        return True
    return role not in _PANELS and bool(_NO_PANEL.search(f"{attributes.get('class')} {attributes.get('id')}"))


def _heading_of_role(attributes: dict[str, str]) -> str:
    level = f"h{attributes.get('aria-level', '2')}"
    return level if level in HEADINGS else "h6"
