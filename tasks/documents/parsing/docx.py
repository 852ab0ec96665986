"""DOCX: paragraphs, headings, lists and tables in the order of the document, then its notes.

Read from its XML rather than through python-docx, whose paragraphs leave out what stands in text boxes, content
controls and equations, and which unpacks every part at once.
"""

from typing import TYPE_CHECKING

from tasks.documents.parsing.archive import Archive
from tasks.documents.parsing.builder import Builder
from tasks.documents.parsing.docx_styles import Styles
from tasks.documents.parsing.docx_text import DocxBlocks
from tasks.documents.parsing.refusals import corrupt, missing
from tasks.documents.parsing.sniff import DOCX
from tasks.documents.parsing.types import Parsed

if TYPE_CHECKING:
    from lxml.etree import _Element

_DOCUMENT = "word/document.xml"
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_RELATIONSHIPS = "_rels/.rels"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def parse_docx(data: bytes) -> Parsed:
    """The document's text; tables are lines of cells divided by ` | `.

    Raises:
        DocumentFailed: `corrupt_document`, `document_too_large`, `password_protected`, `empty_document`,
            `missing_parser`.
    """
    archive = Archive(data, "DOCX")
    document = _xml(archive, _main_part(archive))
    if document is None:
        raise corrupt("DOCX")
    builder = Builder()
    blocks = DocxBlocks(builder, Styles(_xml(archive, "word/styles.xml")))
    blocks.read(document)
    for name in _NOTES:
        if (notes := _xml(archive, name)) is not None:
            blocks.read(notes)
    return builder.parsed(DOCX, _title(archive))


def _main_part(archive: Archive) -> str:
    """Nearly always the same; some programs call it otherwise and say so in the package's relationships."""
    relationships = _xml(archive, _RELATIONSHIPS)
    for found in relationships.iter() if relationships is not None else ():
        if str(found.get("Type", "")).endswith("/officeDocument"):
            return str(found.get("Target", "")).lstrip("/")
    return _DOCUMENT


def _title(archive: Archive) -> str | None:
    properties = _xml(archive, "docProps/core.xml")
    found = properties.find(_TITLE) if properties is not None else None
    return found.text if found is not None else None


def _xml(archive: Archive, name: str) -> "_Element | None":
    try:
        from lxml import etree  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing("lxml") from None
    data = archive.part(name)
    if data is None:
        return None
    # Nothing is fetched and no entity is put in place, so a billion laughs stay one. lxml's own limits on depth and on
    # the length of a text stay on (huge_tree=False).
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError:
        raise corrupt("DOCX") from None
    if root.getroottree().docinfo.internalDTD is not None:  # no Office program writes one
        raise corrupt("DOCX")
    return root
