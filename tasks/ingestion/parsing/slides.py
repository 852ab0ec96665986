"""Presentations (PPTX): a section for each slide, with its title as heading, and the notes of the speaker."""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from tasks.ingestion.parsing.archive import (
    Archive,
    Element,
    attribute,
    first_text,
    local_name,
    of_kind,
    open_archive,
    read_xml,
    related,
)
from tasks.ingestion.parsing.extracted import Extracted, join_pages, left_out, title_of
from tasks.ingestion.parsing.html_to_markdown import Cell, MarkdownWriter, Passage, markdown, table
from tasks.ingestion.parsing.refusals import corrupt, no_text

_NAME = "PPTX"
_TITLES = {"title", "ctrTitle"}
_PICTURES = "slide of pictures alone"
_REPEATED = {"sldNum", "dt", "ftr", "hdr", "sldImg"}  # on each slide the same
_NO_BULLETS = {*_TITLES, "subTitle", "none"}
_UNREAD = {"chart": "chart", "oleObj": "embedded document", "pic": _PICTURES}
_SHAPES = {"sp", "tbl", "relIds", *_UNREAD}
_LEVELS = set("012345678")
_LISTED = {"buChar", "buAutoNum", "buBlip"}


def read_pptx(data: bytes) -> Extracted:
    """Markdown; its pages are the slides, hidden ones too, in the order of the presentation.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `missing_parser`, `no_text`
            (also if most slides are pictures).
    """
    archive = open_archive(data, _NAME)
    main = of_kind(related(archive, ""), "officeDocument") or "ppt/presentation.xml"
    presentation = read_xml(archive, main)
    if presentation is None:
        raise corrupt(_NAME)
    parts = related(archive, main)
    slides, seen = list[str](), dict[str, list[int]]()
    for number, entry in enumerate(presentation.iter("{*}sldId"), 1):
        part = parts.get(next((str(value) for key, value in entry.items() if key.endswith("}id")), ""))
        blocks, unread = _slide(archive, part[1]) if part else ([], set[str]())
        if blocks and blocks[0].kind != "heading":  # or its text would stand under the title of the slide before
            blocks.insert(0, Passage("heading", f"Slide {number}", 2))
        for kind in unread:
            seen.setdefault(kind, []).append(number)
        slides.append(markdown(blocks))
    if not any(slides) or len(seen.get(_PICTURES, ())) > sum(map(bool, slides)):
        raise no_text()
    text, pages = join_pages(slides)
    warnings = [one for kind in sorted(seen) for one in left_out({kind: len(seen[kind])}, seen[kind])]
    title = title_of(first_text(read_xml(archive, "docProps/core.xml"), "title"))
    return Extracted(text, "markdown", title, pages, warnings)


def _slide(archive: Archive, name: str) -> tuple[list[Passage], set[str]]:
    """Its blocks, the title first, and the kinds of what was not read of it."""
    root, parts = read_xml(archive, name), related(archive, name)
    titles, blocks = list[Passage](), list[Passage]()
    unread = {"comment"} if of_kind(parts, "comments") else set[str]()
    for shape in _shapes(root) if root is not None else ():
        name = local_name(shape)
        if name in _UNREAD:
            unread.add(_UNREAD[name])
        elif name == "tbl":
            blocks += table([[Cell(_paragraphs(cell)) for cell in row.iter("{*}tc")] for row in shape.iter("{*}tr")])
        elif name == "relIds":  # SmartArt
            diagram = read_xml(archive, parts.get(attribute(shape, "dm"), ("", ""))[1])
            blocks += _paragraphs(diagram, bullets=True) if diagram is not None else []
        elif (kind := _placeholder(shape)) in _TITLES:
            titles += _paragraphs(shape)
        elif kind not in _REPEATED:
            blocks += _paragraphs(shape, bullets=kind not in _NO_BULLETS)
    if titles:
        blocks.insert(0, Passage("heading", Cell(titles).words, 2))
    if blocks:
        unread.discard(_PICTURES)
    return blocks + _notes(archive, parts), unread


def _shapes(root: Element) -> Iterator[Element]:
    """Whatever has content of its own, in the order of the slide, out of groups and frames too."""
    open_elements = [root]
    while open_elements:
        element = open_elements.pop()
        if local_name(element) in _SHAPES:
            yield element
        elif local_name(element) != "Fallback":  # it repeats its alternative for old programs
            open_elements += reversed(element)


def _placeholder(shape: Element) -> str:
    """What the layout has this shape for: `body` unless it says more, and `none` outside the layout."""
    place = next(shape.iter("{*}ph"), None)
    return "none" if place is None else attribute(place, "type") or "body"


def _paragraphs(shape: Element, *, bullets: bool = False) -> list[Passage]:
    """Of a shape: paragraphs, and lists. The layout gives the bullets of a body of several paragraphs."""
    paragraphs = [paragraph for paragraph in shape.iter("{*}p") if "".join(paragraph.itertext()).strip()]
    bullets = bullets and len(paragraphs) > 1
    writer, lists = MarkdownWriter(), list[str]()  # tags of lists that are open
    for paragraph in paragraphs:
        marks = {local_name(mark) for mark in paragraph.iterfind("{*}pPr/*")}
        wanted = list[str]()
        if marks & _LISTED or (bullets and "buNone" not in marks):
            said = next((attribute(found, "lvl") for found in paragraph.iterchildren("{*}pPr")), "")
            wanted = [*lists[: int(said) if said in _LEVELS else 0], "ol" if "buAutoNum" in marks else "ul"]
        while lists != wanted[: len(lists)]:
            writer.leave(lists.pop())
        for tag in wanted[len(lists) :]:
            writer.enter(tag, {})
        lists = wanted
        block = "li" if wanted else "p"
        writer.enter(block, {})
        for tag, pieces in groupby(_pieces(paragraph, ""), key=itemgetter(0)):
            writer.enter(tag, {})
            writer.text("".join(text for _, text in pieces))
            writer.leave(tag)
        writer.leave(block)
    while lists:
        writer.leave(lists.pop())
    return writer.blocks


def _pieces(element: Element, tag: str) -> Iterator[tuple[str, str]]:
    """Texts of its runs, fields and equations, each with an element of HTML that is around it, or ""."""
    for child in element:
        match local_name(child):
            case "t":
                yield tag, child.text or ""
            case "br":
                yield from (("br", ""), ("", ""))
            case "r" | "fld":
                offset = next((attribute(found, "baseline") for found in child.iterchildren("{*}rPr")), "")
                yield from _pieces(child, "sub" if offset.startswith("-") else "sup" if offset.strip("0%") else "")
            case "Fallback":
                pass
            case _:
                yield from _pieces(child, tag)


def _notes(archive: Archive, parts: dict[str, tuple[str, str]]) -> list[Passage]:
    root = read_xml(archive, of_kind(parts, "notesSlide") or "")
    shapes = root.iter("{*}sp") if root is not None else ()
    return [block for shape in shapes if _placeholder(shape) not in _REPEATED for block in _paragraphs(shape)]
