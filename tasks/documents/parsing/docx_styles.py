"""Styles of a DOCX: which of them are headings, and which are lists."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.etree import _Element

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_VALUE = f"{W}val"
_HEADING = re.compile(r"heading ([1-9])")
_MAX_LEVEL = 6
_MAX_BASES = 20  # a style is based on another one, and a damaged one on itself


class Styles:
    """Looks styles up by id. Their names are English in every language of Word; their ids are not."""

    def __init__(self, styles: "_Element | None") -> None:
        self._levels: dict[str, int] = {}
        self._lists: set[str] = set()
        self._bases: dict[str, str] = {}
        for style in styles.iter(f"{W}style") if styles is not None else ():
            self._learn(style)

    def level(self, paragraph: "_Element") -> int:
        """Of a heading, 1 to 6; 0: it is none."""
        properties = paragraph.find(f"{W}pPr")
        if properties is None:
            return 0
        if level := _outline(properties):
            return level
        return next((self._levels[style] for style in self._styles(properties) if style in self._levels), 0)

    def is_item(self, paragraph: "_Element") -> bool:
        """Whether it has a bullet or a number."""
        properties = paragraph.find(f"{W}pPr")
        if properties is None:
            return False
        if (numbers := properties.find(f"{W}numPr")) is not None:
            return _value(numbers.find(f"{W}numId")) != "0"
        return any(style in self._lists for style in self._styles(properties))

    def _learn(self, style: "_Element") -> None:
        identity = str(style.get(f"{W}styleId", ""))
        name = _value(style.find(f"{W}name")).lower()
        properties = style.find(f"{W}pPr")
        if found := _HEADING.fullmatch(name):
            self._levels[identity] = min(int(found[1]), _MAX_LEVEL)
        elif name == "title":
            self._levels[identity] = 1
        elif properties is not None and (level := _outline(properties)):
            self._levels[identity] = level
        if name.startswith("list") or (properties is not None and properties.find(f"{W}numPr") is not None):
            self._lists.add(identity)
        self._bases[identity] = _value(style.find(f"{W}basedOn"))

    def _styles(self, properties: "_Element") -> list[str]:
        found: list[str] = []
        style = _value(properties.find(f"{W}pStyle"))
        while style and len(found) < _MAX_BASES:
            found.append(style)
            style = self._bases.get(style, "")
        return found


def _outline(properties: "_Element") -> int:
    value = _value(properties.find(f"{W}outlineLvl"))
    return int(value) + 1 if value in {"0", "1", "2", "3", "4", "5"} else 0  # 9 is body text


def _value(element: "_Element | None") -> str:
    return str(element.get(_VALUE, "")) if element is not None else ""
