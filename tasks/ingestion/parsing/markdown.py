"""Markdown and plain text: read as they are written; and the blocks of every text, as CommonMark has its top level.

Not a full reading: what is nested in lists and quotes stays within their block, and links and emphasis are left alone,
because a model reads them well enough. Known difference: a list that follows a paragraph without a blank line stays in
the paragraph's block.

Our own rather than markdown-it-py (4.3): a list of 250,000 short items, 1 MB, takes it 17 s and 500 MB. Here blocks are
found by expressions that never go back, in the worker's own process: each character is looked at a few times.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

from tasks.ingestion.parsing.extracted import Extracted, Structure, title_of
from tasks.ingestion.parsing.refusals import empty
from tasks.ingestion.parsing.text_encoding import decode

BlockKind: TypeAlias = Literal["heading", "paragraph", "list", "table", "code"]


class Block(NamedTuple):
    """A part of a text that belongs together: `text[start:end]`.

    Attributes:
        level: of a heading, 1 to 6; 0 otherwise.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0


MAX_BLOCKS = 200_000
"""Of one text: more would cost more than the text itself. The last one takes the rest."""

_EMBEDDED = re.compile(r"(data:[\w.+-]++/[\w.+-]++)(?:;[\w=.+-]++)*+,[\w+/=%-]{64,}+")
"""Pictures and fonts within the text: a picture of 300 kB would be a thousand chunks that nobody can search."""


def read_text(data: bytes) -> Extracted:
    """Plain text.

    Raises:
        DocumentFailed: `empty_document`, `document_too_large`, `unknown_encoding`, `no_text`, `missing_parser`.
    """
    text = decode(data)
    if not text.strip():
        raise empty()
    return Extracted(text, "paragraphs")


def read_markdown(data: bytes) -> Extracted:
    """Markdown, entitled by its first heading. Raises like `read_text`."""
    text = without_embedded(decode(data))
    if not text.strip():
        raise empty()
    return Extracted(text, "markdown", first_heading(text))


def without_embedded(markdown: str) -> str:
    """The text without the pictures and fonts that are written into it as `data:` URLs."""
    return _EMBEDDED.sub(r"\1", markdown)


def closed(markdown: str) -> str:
    """The text; a fence that is open at its end is closed, so that what follows is not within it."""
    *_, last = _markdown_blocks(f"{markdown}\n\n.")
    fence = _FENCE.match(markdown, last.start)
    return f"{markdown}\n{fence[1]}" if fence else markdown


def first_heading(markdown: str) -> str | None:
    """Its words; None without any."""
    heading = next((block for block in _markdown_blocks(markdown) if block.kind == "heading"), None)
    return title_of(markdown[heading.start : heading.end].partition("\n")[0].strip("# \t")) if heading else None


def blocks(text: str, structure: Structure) -> list[Block]:
    """The blocks of a clean text in order, which cover all of it but white space. At most `MAX_BLOCKS`."""
    found = _markdown_blocks(text) if structure == "markdown" else _paragraphs(text)
    first = list(islice(found, MAX_BLOCKS))
    if len(first) == MAX_BLOCKS and next(found, None):
        first[-1] = Block("paragraph", first[-1].start, len(text.rstrip()))
    return first


# ---- lines, all expressions possessive -------------------------------------------------------------------------------

_END = r"[^\S\n]*+$"  # of a line
_PARAGRAPHS = re.compile(r"^[^\S\n]*+\S[^\n]*+(?:\n[^\S\n]*+\S[^\n]*+)*+", re.MULTILINE)
_BLANK_LINES = re.compile(r"(?:[^\S\n]*+\n)*+")
_FRONT_MATTER = re.compile(
    rf"---{_END}\n(?!{_END})(?:(?!(?:---|\.\.\.){_END})[^\n]*+\n){{1,200}}+(?:---|\.\.\.){_END}", re.MULTILINE
)
_HASHES = r" {0,3}(#{1,6}+)(?=[ \t\n]|\Z)"
_HEADING = re.compile(rf"{_HASHES}[^\n]*+")
# Behind three backticks there is none more in the line: else they are code within a paragraph.
_OPENING = r"(`{3,}+(?=[^`\n]*+(?:\n|\Z))|~{3,}+)"
_FENCE = re.compile(rf" {{0,3}}{_OPENING}[^\n]*+")
_CLOSING = re.compile(rf"^(?P<indent>[^\S\n]*+)(?P<mark>`{{3,}}+|~{{3,}}+){_END}|^(?=\S)", re.MULTILINE)
_INDENTED = re.compile(r"(?:(?: {4}|\t)[^\n]*+(?:\n|\Z)|[^\S\n]*+\n)++")
_MARK = r"(?:[-*+]|\d{1,9}+[.)])"
_ITEM = re.compile(rf"[ \t]{{0,3}}{_MARK}(?=[ \t\n]|\Z)")
_LIST_EVENT = re.compile(
    rf"^(?P<within>[^\S\n]*+(?:{_MARK}[ \t]++)*+){_OPENING}"
    rf"|^{_HASHES}"
    rf"|^[^\S\n]*+\n(?=\S)(?!{_MARK}(?:[ \t\n]|\Z))",
    re.MULTILINE,
)
"""What may end a list: a fence or a heading; after a blank line, text that is neither indented nor an item."""
_HEADER_ROWS = (
    rf"[^\n|]*+\|[^\n]*+\n(?=[^\n|]*+\|) {{0,3}}\|?+[ \t]*+:?+-++:?+[ \t]*+(?:\|[ \t]*+:?+-++:?+[ \t]*+)*+\|?+{_END}"
)
_TABLE = re.compile(rf"{_HEADER_ROWS}(?:\n[^\n|]*+\|[^\n]*+)*+", re.MULTILINE)
_PARAGRAPH_EVENT = re.compile(
    rf"^(?:{_END}|{_HASHES}| {{0,3}}{_OPENING}|(?P<underline> {{0,3}}(?:=++|-++){_END})|{_HEADER_ROWS})", re.MULTILINE
)
"""What ends a paragraph; an underline makes it a heading."""


def _paragraphs(text: str) -> Iterator[Block]:
    return (Block("paragraph", *match.span()) for match in _PARAGRAPHS.finditer(text))


def _markdown_blocks(text: str) -> Iterator[Block]:
    at = 0
    if front := _FRONT_MATTER.match(text):
        yield _block(text, "code", 0, at := front.end())
    while True:
        if skipped := _BLANK_LINES.match(text, at):
            at = skipped.end()
        kind, end, level = _next(text, at)
        block = _block(text, kind, at, end, level)
        if block.start == block.end:
            return
        yield block
        at = end + 1 if text.startswith("\n", end) else end


def _block(text: str, kind: BlockKind, start: int, end: int, level: int = 0) -> Block:
    """Less blank lines and spaces at its end."""
    return Block(kind, start, start + len(text[start:end].rstrip()), level)


def _next(text: str, at: int) -> tuple[BlockKind, int, int]:
    """Kind, end and level of the block that begins with the line at a place."""
    if heading := _HEADING.match(text, at):
        return "heading", heading.end(), len(heading[1])
    if fence := _FENCE.match(text, at):
        return "code", _fence_end(text, fence, fence[0].index(fence[1])), 0
    if indented := _INDENTED.match(text, at):
        return "code", indented.end(), 0
    if first := _ITEM.match(text, at):
        return "list", _list_end(text, first), 0
    if table := _TABLE.match(text, at):
        return "table", table.end(), 0
    return _paragraph(text, at)


def _fence_end(text: str, fence: re.Match[str], indent: int, *, in_list: bool = False) -> int:
    """Behind the line that closes it, or before the one that ends the list's item which it is in."""
    mark: str = fence[fence.lastindex or 1]
    for line in _CLOSING.finditer(text, fence.end()):
        if line["mark"] and line["mark"].startswith(mark) and len(line["indent"].expandtabs(4)) <= indent + 3:
            return line.end()
        if in_list and not line["indent"]:
            return line.start()
    return len(text)


def _list_end(text: str, first: re.Match[str]) -> int:
    at = first.start()
    while event := _LIST_EVENT.search(text, at):
        indent = len((event["within"] or "").expandtabs(4))
        if indent <= len(first[0]):  # not as far as the words of the first item
            return event.start()
        at = _fence_end(text, event, indent, in_list=True)
        if text[at : at + 1].strip() and not _ITEM.match(text, at):
            return at
    return len(text)


def _paragraph(text: str, start: int) -> tuple[BlockKind, int, int]:
    line_end = text.find("\n", start)
    event = _PARAGRAPH_EVENT.search(text, line_end + 1) if line_end >= 0 else None
    if event is None:
        return "paragraph", len(text), 0
    if event["underline"]:
        return "heading", event.end(), 1 if "=" in event["underline"] else 2
    return "paragraph", event.start(), 0
