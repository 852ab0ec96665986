"""Presentations (PPTX): a section for each slide, with its title as heading, and the notes of the speaker."""

from collections.abc import Iterator

from tasks.document_error import MAX_WARNED_PAGES, DocumentWarning
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
from tasks.ingestion.parsing.extracted import Extracted, join_pages, title_of
from tasks.ingestion.parsing.pipe_table import pipe_table
from tasks.ingestion.parsing.refusals import corrupt, no_text

_NAME = "PPTX"
_MAIN = "ppt/presentation.xml"
_TITLES = {"title", "ctrTitle"}
_REPEATED = {"sldNum", "dt", "ftr", "hdr", "sldImg"}  # on each slide the same
_NO_BULLETS = {*_TITLES, "subTitle", "none"}
_LEFT_OUT = {"chart": "charts_left_out", "oleObj": "objects_left_out", "pic": "pages_without_text"}
_SHAPES = {"sp", "tbl", "relIds", *_LEFT_OUT}
_LEVELS = set("012345678")
_LISTED = {"buChar", "buAutoNum", "buBlip"}
_WARNINGS = {
    "pages_without_text": "Slides with pictures and no text (%d): what the pictures show was not read.",
    "charts_left_out": "Slides with charts (%d): these were not read. Give their numbers in a table or in the notes.",
    "objects_left_out": "Slides with embedded documents (%d): these were not read. Ingest them as files of their own.",
}


def read_pptx(data: bytes) -> Extracted:
    """Markdown; its pages are the slides, hidden ones too, in the order of the presentation.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `no_text`, `missing_parser`.
    """
    archive = open_archive(data, _NAME)
    main = of_kind(related(archive, ""), "officeDocument") or _MAIN
    presentation = read_xml(archive, main)
    if presentation is None:
        raise corrupt(_NAME)
    parts = related(archive, main)
    slides, seen = list[str](), dict[str, list[int]]()
    for number, entry in enumerate(presentation.iter("{*}sldId"), 1):
        part = parts.get(next((str(value) for key, value in entry.items() if key.endswith("}id")), ""))
        blocks, left_out = _slide(archive, part[1]) if part else ([], set[str]())
        if blocks and not blocks[0].startswith("## "):
            blocks.insert(0, f"## Slide {number}")  # or its text would stand under the title of the slide before
        for code in left_out:
            seen.setdefault(code, []).append(number)
        slides.append("\n\n".join(blocks))
    if not any(slides):
        raise no_text()
    text, pages = join_pages(slides)
    warnings = [
        DocumentWarning(code, message % len(seen[code]), tuple(seen[code][:MAX_WARNED_PAGES]))
        for code, message in _WARNINGS.items()
        if code in seen
    ]
    title = title_of(first_text(read_xml(archive, "docProps/core.xml"), "title"))
    return Extracted(text, "markdown", title, pages, warnings)


def _slide(archive: Archive, name: str) -> tuple[list[str], set[str]]:
    """Its blocks, the title first, and the codes of what could not be read of it."""
    root = read_xml(archive, name)
    parts = related(archive, name)
    titles, blocks, left_out = list[str](), list[str](), set[str]()
    for shape in _shapes(root) if root is not None else ():
        name = local_name(shape)
        if name in _LEFT_OUT:
            left_out.add(_LEFT_OUT[name])
        elif name == "tbl":
            cells = ([" ".join(_paragraphs(cell)) for cell in row.iter("{*}tc")] for row in shape.iter("{*}tr"))
            blocks.append(pipe_table(cells))
        elif name == "relIds":  # SmartArt
            diagram = read_xml(archive, parts.get(attribute(shape, "dm"), ("", ""))[1])
            blocks += _paragraphs(diagram, bullets=True) if diagram is not None else []
        elif (kind := _placeholder(shape)) in _TITLES:
            titles += [" ".join(text.split()) for text in _paragraphs(shape)]
        elif kind not in _REPEATED:
            blocks += _paragraphs(shape, bullets=kind not in _NO_BULLETS)
    blocks = [f"## {title}" for title in [" ".join(titles)] if title] + [block for block in blocks if block]
    if blocks:
        left_out.discard("pages_without_text")
    return blocks + _notes(archive, parts), left_out


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


def _paragraphs(shape: Element, *, bullets: bool = False) -> list[str]:
    """Of a shape: paragraphs, and lists. The layout gives the bullets of a body of several paragraphs."""
    texts = [(paragraph, _text(paragraph)) for paragraph in shape.iter("{*}p")]
    texts = [(paragraph, text) for paragraph, text in texts if text]
    bullets = bullets and len(texts) > 1
    blocks, items, numbers = list[str](), list[str](), list[int]()
    for paragraph, text in texts:
        properties = paragraph.find("{*}pPr")
        marks = {local_name(child) for child in properties} if properties is not None else set[str]()
        if marks & _LISTED or (bullets and "buNone" not in marks):
            said = attribute(properties, "lvl") if properties is not None else ""
            level = min(int(said) if said in _LEVELS else 0, len(numbers))
            numbers = [*numbers, 0][: level + 1]
            numbers[level] += 1
            mark = f"{numbers[level]}." if "buAutoNum" in marks else "-"
            items.append(f"{'   ' * level}{mark} {' '.join(text.split())}")
        else:
            blocks += ["\n".join(items)] if items else []
            blocks.append(text)
            items, numbers = [], []
    return blocks + (["\n".join(items)] if items else [])


def _text(paragraph: Element) -> str:
    """Of its runs, fields and equations."""
    parts = list[str]()
    open_elements = [paragraph]
    while open_elements:
        element = open_elements.pop()
        match local_name(element):
            case "t":
                parts.append(element.text or "")
            case "br":
                parts.append("\n")
            case "Fallback":
                pass
            case _:
                open_elements += reversed(element)
    return "".join(parts).strip()


def _notes(archive: Archive, parts: dict[str, tuple[str, str]]) -> list[str]:
    name = of_kind(parts, "notesSlide")
    root = read_xml(archive, name) if name else None
    shapes = root.iter("{*}sp") if root is not None else ()
    return [text for shape in shapes if _placeholder(shape) not in _REPEATED
            for text in _paragraphs(shape)]  # fmt: skip
