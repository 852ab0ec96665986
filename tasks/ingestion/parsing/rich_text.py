"""Rich Text Format (RTF): headings, paragraphs, tables, notes and text boxes.

Not by striprtf, the library for it: it takes minutes for a few kilobytes of links or fonts that were made for that,
loses what follows a binary picture, footnotes and text boxes, and halves characters beyond U+FFFF.
"""

import codecs
import re
from collections import Counter
from dataclasses import dataclass, replace

from tasks.ingestion.parsing.extracted import Extracted, joined
from tasks.ingestion.parsing.html_to_markdown import Cell, Passage, markdown, script, table
from tasks.ingestion.parsing.refusals import corrupt
from tasks.ingestion.parsing.text_encoding import codec_of

_NAME = "RTF"
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_MAX_DEPTH = 1000
_BODY = 9  # the outline level of what is no heading
# What is no text, is on each page the same, repeats what another group says, or says what is not shown.
_SKIPPED = {
    *("colortbl", "stylesheet", "info", "nonshppict", "header", "headerl", "headerr", "headerf", "footer", "footerl"),
    *("footerr", "footerf", "fldinst", "shprslt", "sp", "nonesttables", "xe", "tc", "listtable", "filetbl"),
    *("atnid", "atnauthor", "generator", "themedata", "datastore", "ftnsep", "ftnsepc", "aftnsep"),
    *("listoverridetable", "revtbl", "rsidtbl", "template", "falt", "panose", "fname", "bkmkstart", "bkmkend"),
}
_UNREAD = {"annotation": "comment", "objdata": "embedded document", "pict": "picture", "shppict": "picture"}
_ASIDES = {"footnote", "shptxt"}
_READ_THOUGH_MARKED = {"footnote", "shpinst", "shptxt"}  # `\*`: programs that do not know the word skip the group
_CHARS = {
    **dict.fromkeys(("emspace", "enspace", "qmspace", "nestcell", "nestrow"), " "),
    **dict(zip(("tab", "line", "bullet", "emdash", "endash"), "\t\n\u2022\u2014\u2013", strict=True)),
    **dict(zip(("lquote", "rquote", "ldblquote", "rdblquote"), "\u2018\u2019\u201c\u201d", strict=True)),
}
_SYMBOLS = {"~": " ", "_": "-", "{": "{", "}": "}", "\\": "\\"}
# Code pages of the numbers of character sets; 0 and 1 mean that of the document.
_PAGES = {
    77: 10000, 128: 932, 129: 949, 130: 1361, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255, 178: 1256,
    186: 1257, 204: 1251, 222: 874, 238: 1250, "mac": 10000, "pc": 437, "pca": 850,
}  # fmt: skip
_BULLET = re.compile(r"^[•·▪◦‣§\uf0b7\uf0a7o-]\t\s*")
_NUMBER = re.compile(r"^(\w{1,5}[.)])\t\s*")


def read_rtf(data: bytes) -> Extracted:
    """Markdown.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `no_text`.
    """
    data = data.removeprefix(codecs.BOM_UTF8).lstrip()
    if not data.startswith(b"{\\rtf"):
        raise corrupt(_NAME)
    reader = _Reader()
    reader.read(data)
    return joined([markdown(reader.blocks)], _whole(reader.title), unread=reader.unread)


@dataclass(slots=True)
class _Group:
    """What holds within braces.

    Attributes:
        into: where its text goes; None: nowhere.
        fallback: bytes that stand for a character in old programs, after each.
    """

    into: list[str] | None
    encoding: str = ""
    fallback: int = 1
    fonts: bool = False
    deleted: bool = False
    raised: str = ""


class _Reader:
    """Reads token by token."""

    def __init__(self) -> None:
        self.title: list[str] = []
        self.unread = Counter[str]()
        self._text: list[str] = []
        self._asides: list[list[str]] = []
        self.blocks: list[Passage] = []
        self._rows: list[list[Cell]] = [[]]
        self._group = _Group(self._text)
        self._open: list[_Group] = []
        self._bytes = bytearray()
        self._default = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = self._font_by_default = self._notes = 0
        self._level, self._in_table, self._marked, self._skip = 0, False, False, 0

    def read(self, data: bytes) -> None:
        at = 0
        while match := _TOKEN.match(data, at):
            at = match.end()
            word, number, code, symbol, brace, text = match.groups()
            if text or code:
                raw = text or bytes([int(code, 16)])
                self._bytes += raw[self._skip :]
                self._skip = max(0, self._skip - len(raw))
                continue
            self._decode()
            if word == b"bin":
                at += max(int(number or 0), 0)
            elif word:
                self._word(word.decode(), int(number) if number else None)
            elif symbol == b"*":
                self._marked = True
            elif symbol in {b"\n", b"\r"}:
                self._word("par", None)
            elif symbol:
                self._put(_SYMBOLS.get(symbol.decode("latin-1"), ""))
            elif brace and not self._brace(brace):
                break
        self._decode()
        self._in_table = False
        self._paragraph()

    def _brace(self, brace: bytes) -> bool:
        """Whether the document goes on."""
        self._skip = 0
        if brace == b"{":
            if len(self._open) == _MAX_DEPTH:
                raise corrupt(_NAME)
            self._open.append(self._group)
            self._group = replace(self._group)
        elif self._open:
            self._group = self._open.pop()
        return bool(self._open)

    def _word(self, word: str, number: int | None) -> None:
        group, marked, self._marked = self._group, self._marked, False
        if group.fonts or word == "fonttbl":
            self._of_fonts(word, number)
        elif word == "title":
            group.into = self.title
        elif group.into is None or word in _SKIPPED or word in _UNREAD or (marked and word not in _READ_THOUGH_MARKED):
            if group.into is not None and word in _UNREAD:
                self.unread[_UNREAD[word]] += 1
            group.into = None
        elif word in _ASIDES:
            self._aside(word)
        elif group.into is self._text and self._of_paragraph(word, number):
            pass
        else:
            self._of_characters(word, number)

    def _of_fonts(self, word: str, number: int | None) -> None:
        self._group.into, self._group.fonts = None, True
        if word == "f":
            self._font = number or 0
        elif word == "fcharset":
            self._fonts[self._font] = codec_of(f"cp{_PAGES.get(number or 0)}")

    def _aside(self, word: str) -> None:
        """A note or a text box: its text follows the paragraph that it is tied to."""
        self._notes += word == "footnote"
        mark = f"[{self._notes}]" if word == "footnote" else ""
        self._group.raised = ""
        self._put(mark)
        self._group.into = [f"{mark} "]
        self._asides.append(self._group.into)

    def _of_paragraph(self, word: str, number: int | None) -> bool:
        match word:
            case "par" | "sect" | "page":
                self._paragraph()
            case "pard":
                self._level, self._in_table = 0, False
            case "intbl":
                self._in_table = True
            case "outlinelevel":
                self._level = 0 if number is None or number >= _BODY else min(max(number, 0) + 1, 6)
            case "cell":
                self._rows[-1].append(Cell([Passage("paragraph", text)] if (text := _whole(self._text)) else []))
                self._text.clear()
            case "row":
                self._rows.append([])
            case _:
                return False
        return True

    def _of_characters(self, word: str, number: int | None) -> None:
        group = self._group
        match word:
            case "u":
                self._put(chr((number or 0) % 0x10000))  # which is signed
                self._skip = group.fallback
            case "uc":
                group.fallback = max(number or 0, 0)
            case "f":
                group.encoding = self._fonts.get(number or 0, "")
            case "plain":
                group.encoding, group.deleted, group.raised = "", False, ""
            case "super" | "sub" | "nosupersub":
                group.raised = "" if number == 0 or word == "nosupersub" else word
            case "deleted":
                group.deleted = number != 0
            case "deff":
                self._font_by_default = number or 0
            case "ansicpg" | "mac" | "pc" | "pca":
                self._default = codec_of(f"cp{_PAGES.get(word, number)}") or self._default
            case "par" | "cell" | "row":  # of a note
                self._put("\n")
            case _:
                self._put(_CHARS.get(word, ""))

    def _decode(self) -> None:
        """Bytes become text where a run ends: a character may be two bytes, the second of them a letter."""
        self._skip = 0
        if self._bytes:
            encoding = self._group.encoding or self._fonts.get(self._font_by_default, "") or self._default
            self._put(self._bytes.decode(encoding, "replace"))
            self._bytes.clear()

    def _put(self, text: str) -> None:
        group = self._group
        if text and group.into is not None and not group.deleted:
            bare = text.strip() if group.raised else ""
            raised = script(group.raised == "super", "".join(group.into[-1:]), bare) if bare else ""
            group.into.append(text.replace(bare, raised, 1))

    def _paragraph(self) -> None:
        if self._in_table:
            self._text.append("\n")
            return
        self.blocks += table(self._rows)
        self._rows = [[]]
        if text := _NUMBER.sub(r"\1 ", _BULLET.sub("- ", _whole(self._text))):
            self.blocks.append(Passage("heading" if self._level else "paragraph", text, self._level))
        self._text.clear()
        self.blocks += [Passage("paragraph", text) for aside in self._asides if (text := _whole(aside))]
        self._asides.clear()


def _whole(parts: list[str]) -> str:
    """Their text; characters beyond U+FFFF come as two halves."""
    return "".join(parts).strip().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
