"""Markdown: its blocks, found line by line as CommonMark does at its top level. The text stays as it is written.

Pictures that are written into it (`data:` URLs) are left out. Not a full reading: what is nested in lists and quotes
stays within their block, and links and emphasis are left alone, because a model reads them well enough.

Our own rather than markdown-it-py (4.3): a list of 250,000 short items, 1 MB, takes it 17 s and 500 MB, and this file
1.1 s and 100 MB. So a list of 5 MB would miss the limits of parsing. Known difference: a list or a table that follows a
paragraph without a blank line stays in the paragraph's block.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.parsed_document import Block, BlockKind, Parsed, whole
from tasks.documents.parsing.text_encoding import decode

_MEDIA_TYPE = "text/markdown"

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"[ \t]{0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_TABLE_RULE = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")
_INDENTED = re.compile(r"(?: {4}|\t)")
_MAX_MATCHED_CHARS = 1000  # of a line: no mark is longer, and no expression sees a line without end
_FRONT_MATTER = "---"
_EMBEDDED = re.compile(r"(data:[\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*,[\w+/=%-]{64,}")
"""Pictures and fonts within the text: a picture of 300 kB would be a thousand chunks that nobody can search."""


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str = field(repr=False)  # its beginning

    @property
    def blank(self) -> bool:
        return not self.text


def parse_markdown(data: bytes) -> Parsed:
    """The text and its headings, paragraphs, lists, tables and code.

    Raises:
        DocumentFailed: `empty_document`, `document_too_large`, `unknown_encoding`, `missing_parser`.
    """
    text = _EMBEDDED.sub(r"\1", decode(data))
    blocks = list(_Scanner(list(_lines(text))).blocks())
    first = next((block for block in blocks if block.kind == "heading"), None)
    title = text[first.start : first.end].partition("\n")[0].strip("# \t") if first else None
    return whole(text, blocks, _MEDIA_TYPE, title)


def _lines(text: str) -> Iterator[_Line]:
    position = 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip()
        yield _Line(position, position + len(bare), bare[:_MAX_MATCHED_CHARS])
        position += len(line)


class _Scanner:
    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        self._at = 0

    def blocks(self) -> Iterator[Block]:
        if self._lines and self._lines[0].text == _FRONT_MATTER and (end := self._front_matter_end()):
            yield self._take("code", end)
        while self._at < len(self._lines):
            if self._lines[self._at].blank:
                self._at += 1
            else:
                yield self._block()

    def _block(self) -> Block:
        line = self._lines[self._at].text
        if heading := _HEADING.match(line):
            return self._take("heading", self._at + 1, len(heading[1]))
        if fence := _FENCE.match(line):
            return self._take("code", self._fence_end(fence[1], self._at))
        if _INDENTED.match(line):
            return self._take("code", self._end_of(lambda text: not text or bool(_INDENTED.match(text))))
        if _ITEM.match(line):
            return self._take("list", self._list_end())
        if self._is_table():
            return self._take("table", self._end_of(lambda text: "|" in text))
        return self._paragraph()

    def _take(self, kind: BlockKind, end: int, level: int = 0) -> Block:
        """A block of the lines up to `end`, less blank ones at its end; goes on behind it."""
        first = self._at
        self._at = end
        last = end - 1
        while last > first and self._lines[last].blank:
            last -= 1
        return Block(kind, self._lines[first].start, self._lines[last].end, level)

    def _front_matter_end(self) -> int | None:
        for index in range(1, min(len(self._lines), 200)):
            if self._lines[index].text in {_FRONT_MATTER, "..."}:
                return index + 1
        return None

    def _fence_end(self, mark: str, opened: int) -> int:
        for index in range(opened + 1, len(self._lines)):
            bare = self._lines[index].text.strip()
            if len(bare) >= len(mark) and bare == mark[0] * len(bare):
                return index + 1
        return len(self._lines)

    def _end_of(self, belongs: Callable[[str], bool]) -> int:
        index = self._at + 1
        while index < len(self._lines) and belongs(self._lines[index].text):
            index += 1
        return index

    def _list_end(self) -> int:
        """Behind the list: after a blank line it goes on only with another item or an indented line."""
        index = self._at + 1
        while index < len(self._lines):
            text = self._lines[index].text
            if fence := _FENCE.match(text.lstrip()[:100]):
                if not text[0].isspace():
                    break
                index = self._fence_end(fence[1], index)
                continue
            after_blank = self._lines[index - 1].blank
            if text and after_blank and not text[0].isspace() and not _ITEM.match(text):
                break
            if _HEADING.match(text):
                break
            index += 1
        return index

    def _is_table(self) -> bool:
        here = self._at
        return (
            "|" in self._lines[here].text
            and here + 1 < len(self._lines)
            and "-" in self._lines[here + 1].text
            and bool(_TABLE_RULE.match(self._lines[here + 1].text))
        )

    def _paragraph(self) -> Block:
        index = self._at + 1
        while index < len(self._lines):
            text = self._lines[index].text
            if not text or _HEADING.match(text) or _FENCE.match(text):
                break
            if underline := _UNDERLINE.match(text):
                return self._take("heading", index + 1, 1 if underline[1][0] == "=" else 2)
            index += 1
        return self._take("paragraph", index)


MARKDOWN = DocumentFormat(
    _MEDIA_TYPE,
    "Markdown",
    "text",
    parse_markdown,
    endings=(".md", ".markdown", ".mdown", ".mkd", ".mdx"),
    harmless=True,
)
