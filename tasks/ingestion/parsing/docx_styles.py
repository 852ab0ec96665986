"""What styles and numbering of a DOCX say of a paragraph: whether it is a heading or an item, and its number.

Word writes no numbers into the text: it counts paragraphs of a list, level by level, when it shows them.
"""

import re
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from tasks.ingestion.parsing.archive import Element, attribute, local_name

_HEADING = re.compile(r"heading ([1-9])")
_MAX_HEADING = 6
_MAX_LEVEL = 8
_MAX_BASES = 20  # a style is based on another one, and a damaged one on itself
_MAX_NUMBER = 100_000
_MAX_LABEL_CHARS = 100  # it is written before each paragraph
_PLACE = re.compile(r"%([1-9])")
_ROMAN = {
    "m": 1000, "cm": 900, "d": 500, "cd": 400, "c": 100, "xc": 90, "l": 50, "xl": 40, "x": 10, "ix": 9, "v": 5, "iv": 4,
    "i": 1,
}  # fmt: skip


def value(parent: Element | None, *path: str) -> str:
    """The value of an element below another one, named without its namespace; empty: there is none."""
    for name in path:
        parent = parent.find(f"{{*}}{name}") if parent is not None else None
    return attribute(parent, "val") if parent is not None else ""


@dataclass(frozen=True, slots=True)
class Place:
    """Of a paragraph in its document.

    Attributes:
        heading: 1 to 6; 0: it is none.
        level: of a list, from 0; None: it is no item.
        label: `1.2`, `(a)`; empty: a bullet, or no item.
    """

    heading: int = 0
    level: int | None = None
    label: str = ""


@dataclass(slots=True)
class _Style:
    based_on: str
    heading: int
    number: str  # of a list; "0": of none
    level: str
    is_list: bool


class Styles:
    """Looks styles up by id. Their names are English in every language of Word; their ids are not."""

    def __init__(self, styles: Element | None, numbering: Element | None) -> None:
        self._styles = {
            attribute(style, "styleId"): _style(style)
            for style in (styles.iter("{*}style") if styles is not None else ())
        }
        self._numbering = _Numbering(numbering)

    def place(self, paragraph: Element) -> Place:
        """Where it stands; to be asked once for each paragraph, in their order, because it counts them."""
        properties = paragraph.find("{*}pPr")
        if properties is None:
            return Place()
        chain = self._chain(value(properties, "pStyle"))
        heading = _outline(properties) or next((style.heading for _, style in chain if style.heading), 0)
        number = value(properties, "numPr", "numId") or next((style.number for _, style in chain if style.number), "")
        level = value(properties, "numPr", "ilvl")
        if not level:  # of the style, which the list may name too
            levels = (self._numbering.level_of(number, name) or style.level for name, style in chain)
            level = next((found for found in levels if found), "0")
        if number and number != "0":
            depth = min(int(level), _MAX_LEVEL) if level.isdecimal() else 0
            label = self._numbering.next_label(number, depth)
            return Place(heading, None if label is None else depth, label or "")
        listed = not number and any(style.is_list for _, style in chain)
        return Place(heading, 0 if listed else None)

    def _chain(self, name: str) -> list[tuple[str, _Style]]:
        chain = list[tuple[str, _Style]]()
        while name in self._styles and len(chain) < _MAX_BASES:
            chain.append((name, self._styles[name]))
            name = self._styles[name].based_on
        return chain


def _style(style: Element) -> _Style:
    name = value(style, "name").lower()
    properties = style.find("{*}pPr")
    heading = _HEADING.fullmatch(name)
    level = min(int(heading[1]), _MAX_HEADING) if heading else int(name == "title") or _outline(properties)
    return _Style(
        value(style, "basedOn"),
        level,
        value(properties, "numPr", "numId"),
        value(properties, "numPr", "ilvl"),
        name.startswith("list") and name != "list paragraph",  # which Word gives to all that is indented
    )


def _outline(properties: Element | None) -> int:
    level = value(properties, "outlineLvl")
    return int(level) + 1 if level in {"0", "1", "2", "3", "4", "5"} else 0  # 9 is body text


# ---- numbers ---------------------------------------------------------------------------------------------------------


class _Numbers(NamedTuple):
    """A list: its levels. Lists of one `abstract` go on counting where the other one stopped."""

    abstract: str
    levels: dict[int, Element]
    restarts: dict[int, int]  # level -> number, once


class _Numbering:
    def __init__(self, numbering: Element | None) -> None:
        self._lists: dict[str, _Numbers] = {}
        self._counts: dict[str, list[int | None]] = {}
        if numbering is None:
            return
        abstracts = {attribute(each, "abstractNumId"): each for each in numbering.iter("{*}abstractNum")}
        for number in numbering.iter("{*}num"):
            numbers = self._lists[attribute(number, "numId")] = _Numbers(value(number, "abstractNumId"), {}, {})
            overrides = number.findall("{*}lvlOverride")
            for level in chain(abstracts.get(numbers.abstract, ()), *overrides):
                if local_name(level) == "lvl":
                    numbers.levels[_number(attribute(level, "ilvl"))] = level
            for override in overrides:
                if start := value(override, "startOverride"):
                    numbers.restarts[_number(attribute(override, "ilvl"))] = _number(start, 1)

    def level_of(self, number: str, style: str) -> str:
        """The level of a list that belongs to a style; empty: none."""
        levels = self._lists[number].levels if number in self._lists else {}
        return next((str(index) for index, level in levels.items() if value(level, "pStyle") == style), "")

    def next_label(self, number: str, depth: int) -> str | None:
        """Counts a paragraph; the label that Word shows, empty for a bullet; None: it shows none."""
        if number not in self._lists:
            return ""
        numbers = self._lists[number]
        level = numbers.levels.get(depth)
        counts = self._counts.setdefault(numbers.abstract, [None] * (_MAX_LEVEL + 1))
        before = counts[depth]
        counts[depth] = numbers.restarts.pop(depth, _start(level) if before is None else before + 1)
        counts[depth + 1 :] = [None] * (_MAX_LEVEL - depth)
        if level is None or value(level, "numFmt") == "bullet":
            return ""
        if value(level, "numFmt") == "none":
            return None
        legal = level.find("{*}isLgl") is not None  # all of its numbers in digits

        def shown(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            count = counts[at]
            if count is None:  # a level that no paragraph has been on yet
                count = counts[at] = _start(numbers.levels.get(at))
            return _formatted(count, "" if legal else value(numbers.levels.get(at), "numFmt"))

        return _PLACE.sub(shown, value(level, "lvlText")[:_MAX_LABEL_CHARS]).strip() or None


def _start(level: Element | None) -> int:
    return _number(value(level, "start"), 1)


def _number(text: str, otherwise: int = 0) -> int:
    return min(int(text), _MAX_NUMBER) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise  # noqa: PLR2004 - digits


def _formatted(number: int, form: str) -> str:
    text = str(number)
    if form in {"none", "bullet"}:
        return ""
    if form in {"lowerLetter", "upperLetter"} and number > 0:  # a, b, … z, aa, bb, …
        text = chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 5)
    elif form in {"lowerRoman", "upperRoman"} and number > 0:
        text = ""
        for sign, size in _ROMAN.items():
            text += sign * (number // size)
            number %= size
    return text.upper() if form.startswith("upper") else text
