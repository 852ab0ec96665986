"""reStructuredText -> Markdown, as far as it says more than plain text: headings, code, and what directives hold.

Not by docutils: its directives read files and run for minutes, and its tree would have to be written down again.
"""

import re
import string
import textwrap
from collections import Counter
from collections.abc import Callable

from tasks.ingestion.parsing.extracted import Extracted, joined
from tasks.ingestion.parsing.html_to_markdown import Passage, without_marks
from tasks.ingestion.parsing.refusals import empty
from tasks.ingestion.parsing.text_encoding import decode

_SHORT_RULE = 4  # and shorter than its title: too short is taken for none
_DIRECTIVE = re.compile(r"\.\.[ ]+(?:\|[^|]*\|[ ]+)?([\w:+.-]+)::(?:[ ]+(.*))?")
_FOOTNOTE = re.compile(r"\.\.[ ]+(\[[^\]\s]+\])[ ]*(.*)")
_OPTION = re.compile(r":([\w-]+):(?:[ ]+(.*))?")
_SHOWN = {"header", "caption", "alt"}
_CODE = {"code", "code-block", "sourcecode", "parsed-literal", "prompt"}
_UNREAD = {"include", "literalinclude", "raw", "automodule", "autoclass", "autofunction"}
_NO_TEXT = {
    "", *_UNREAD, "image", "toctree", "contents", "highlight", "index", "default-role", "role", "sectnum",
    "currentmodule", "module", "target-notes", "meta", "replace", "unicode",
}  # fmt: skip


def read_rst(data: bytes) -> Extracted:
    """Markdown: `#` for the underlines in the order in which they come, fences for code; all else as it is written.

    Raises:
        DocumentFailed: `empty_document`, `no_text`, and what `decode` raises.
    """
    text = decode(data)
    if not text.strip():
        raise empty()
    reader = _Reader(text.expandtabs().split("\n"))
    reader.read()
    return joined(["\n".join(reader.out)], reader.title, unread=reader.unread)


class _Reader:
    """Reads line by line; each line is looked at a fixed number of times."""

    def __init__(self, lines: list[str]) -> None:
        self.out: list[str] = []
        self.title: str | None = None
        self.unread = Counter[str]()
        self._lines = lines
        self._at = 0
        self._styles: list[str] = []

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                self._blank()
                self._at += 1
                continue
            indent = _indent(line)
            text = line.strip()
            if text == ".." or text.startswith(".. "):
                self._explicit(text, indent)
            elif text.startswith(">>> "):
                self._fence("python", self._taken(lambda following: bool(following.strip())))
            elif not (indent == 0 and self._heading()):
                self._paragraph_line(line, indent)

    def _blank(self) -> None:
        if self.out and self.out[-1]:
            self.out.append("")

    def _heading(self) -> bool:
        """Whether a heading begins here, which is then read."""
        lines = [line.rstrip() for line in self._lines[self._at : self._at + 3]]
        over = len(lines) > 2 and _is_rule(lines[0]) and lines[2] == lines[0]  # noqa: PLR2004
        title, rule = (lines[1].strip(), lines[2]) if over else (lines[0], lines[1] if len(lines) > 1 else "")
        if not title or not _is_rule(rule) or _is_rule(title):
            return False
        if len(rule) < min(len(title), _SHORT_RULE) or (not over and self.out and self.out[-1]):
            return False
        style = rule[0] * (1 + over)
        if style not in self._styles:
            self._styles.append(style)
        self.out.append(f"{'#' * min(self._styles.index(style) + 1, 6)} {title}")
        self._blank()
        self.title = self.title or title
        self._at += 2 + over
        return True

    def _paragraph_line(self, line: str, indent: int) -> None:
        line = line.rstrip()
        self._at += 1
        ends = self._at == len(self._lines) or not self._lines[self._at].strip()
        if not (ends and line.endswith("::")):
            self.out.append(without_marks(line))
            return
        if before := line.removesuffix("::").rstrip():
            self.out.append(before + ":")
        self._fence("", self._body(indent))

    def _explicit(self, text: str, indent: int) -> None:
        """A directive, a footnote, a target or a comment."""
        self._at += 1
        if footnote := _FOOTNOTE.fullmatch(text):
            self.out.append(f"{footnote[1]} {footnote[2]}")
            return
        directive = _DIRECTIVE.fullmatch(text)
        name, argument = (directive[1].lower(), directive[2] or "") if directive else ("", "")
        if text == ".." and not "".join(self._lines[self._at : self._at + 1]).strip():
            return
        options = self._taken(lambda line: _indent(line) > indent and _OPTION.fullmatch(line.strip()) is not None)
        said = {found[1]: found[2] or "" for line in options if (found := _OPTION.fullmatch(line.strip()))}
        if name in _UNREAD or "file" in said:
            self.unread[f"directive `{name}`"] += 1
        if name not in _NO_TEXT and name not in _CODE:
            self.out.append(f"{name.capitalize()}: {argument}".strip() if ":" not in name else argument)
        self.out += [words for option, words in said.items() if option in _SHOWN]
        if name in _CODE:
            self._fence(argument, self._body(indent))
        elif name in _NO_TEXT:
            self._body(indent)
            self._blank()

    def _body(self, indent: int) -> list[str]:
        """The lines that follow and are indented more."""
        return self._taken(lambda line: not line.strip() or _indent(line) > indent)

    def _taken(self, belongs: Callable[[str], bool]) -> list[str]:
        begin = self._at
        while self._at < len(self._lines) and belongs(self._lines[self._at]):
            self._at += 1
        return self._lines[begin : self._at]

    def _fence(self, language: str, lines: list[str]) -> None:
        code = textwrap.dedent("\n".join(lines)).strip("\n")
        if code.strip():
            self._blank()
            self.out += [Passage("code", code, language=language).markdown(), ""]


def _is_rule(line: str) -> bool:
    return len(line) > 1 and line[0] in string.punctuation and line == line[0] * len(line)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
