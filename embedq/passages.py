"""Splits Markdown and plain text into passages for search. Pure and simple; real documents are the server's work."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 800
"""About 200 tokens of English: within what small models read, and of one topic in most documents."""
_MIN_CHARS = 40

_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*$")
_FENCES = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document: `source` its file, `heading` the section it stands in, '' before the first one."""

    source: str
    heading: str
    text: str


def split(source: str, document: str, *, max_chars: int = MAX_CHARS) -> Iterator[Passage]:
    """The passages of a document in order: paragraphs of one section, joined up to `max_chars`.

    Fenced code stays in one piece with its section; a passage shorter than 40 characters is left out. Each text begins
    with its heading, which is often the only place where the topic is named.
    """
    for heading, blocks in _sections(document):
        for text in _joined(blocks, max_chars):
            if len(text) >= _MIN_CHARS:
                yield Passage(source, heading, f"{heading}\n\n{text}" if heading else text)


def _sections(document: str) -> Iterator[tuple[str, list[str]]]:
    heading = ""
    blocks: list[str] = []
    for block in _blocks(document):
        found = _HEADING.match(block)
        if found is None:
            blocks.append(block)
            continue
        yield heading, blocks
        heading, blocks = found[1], []
    yield heading, blocks


def _blocks(document: str) -> Iterator[str]:
    """Paragraphs, headings and fenced code, each as one string."""
    lines: list[str] = []
    fence = ""
    for line in document.splitlines():
        marker = line.lstrip()[:3]
        if fence:
            fence = "" if marker == fence else fence
        elif marker in _FENCES:
            fence = marker
        elif not line.strip() or _HEADING.match(line):
            yield from _block(lines)
            lines = []
            if line.strip():
                yield line
            continue
        lines.append(line)
    yield from _block(lines)


def _block(lines: list[str]) -> Iterator[str]:
    if lines:
        yield "\n".join(lines)


def _joined(blocks: list[str], max_chars: int) -> Iterator[str]:
    text = ""
    for part in (piece for block in blocks for piece in _cut_long(block, max_chars)):
        if text and len(text) + 2 + len(part) > max_chars:
            yield text
            text = ""
        text = f"{text}\n\n{part}" if text else part
    if text:
        yield text


def _cut_long(block: str, max_chars: int) -> Iterator[str]:
    """The block in parts of at most `max_chars`, cut at the end of a line, else at a space, where there is one."""
    while len(block) > max_chars:
        # A line's end in the first half would leave many small parts.
        ends = block.rfind("\n", max_chars // 2, max_chars), block.rfind(" ", 1, max_chars)
        cut = next((end for end in ends if end > 0), max_chars)
        yield block[:cut].rstrip()
        block = block[cut:].lstrip()
    yield block
