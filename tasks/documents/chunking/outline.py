"""Where in a document a chunk is: its page, and the headings above it."""

from bisect import bisect_right
from collections.abc import Sequence

from tasks.documents.parsing.types import Block

MAX_TITLE_CHARS = 500
"""Of a heading as it stands beside each chunk of its section: a page without line breaks may pass for one."""


class Outline:
    """Answers for places in the order of the text."""

    def __init__(self, text: str, blocks: Sequence[Block], pages: Sequence[int]) -> None:
        self._text = text
        self._headings = [block for block in blocks if block.kind == "heading"]
        self._pages = pages
        self._passed = 0
        self._path: list[tuple[int, str]] = []

    def page(self, place: int) -> int | None:
        """The page on which a place is, from 1; None without pages."""
        return max(1, bisect_right(self._pages, place)) if self._pages else None

    def headings(self, place: int) -> tuple[str, ...]:
        """Of the sections that a place is in, the outermost first; one that begins there included.

        `place` is not before that of an earlier call.
        """
        while self._passed < len(self._headings) and self._headings[self._passed].start <= place:
            heading = self._headings[self._passed]
            while self._path and self._path[-1][0] >= heading.level:
                self._path.pop()
            self._path.append((heading.level, _title(self._text[heading.start : heading.end], heading.level)))
            self._passed += 1
        return tuple(title for _, title in self._path)


def _title(text: str, level: int) -> str:
    """A heading on one line, without the marks of Markdown: `#` as often as its level says, or a line below it."""
    lines = text.splitlines()
    below = lines[-1].strip() if len(lines) > 1 else ""
    if below and set(below) in ({"="}, {"-"}):
        lines.pop()
    words = " ".join(lines).split()
    if len(words) > 1 and words[0] == "#" * level:
        words = words[1:]
        if len(words) > 1 and not words[-1].strip("#"):
            words.pop()
    return " ".join(words)[:MAX_TITLE_CHARS].rstrip()
