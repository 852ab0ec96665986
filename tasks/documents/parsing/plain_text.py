"""Plain text: blank lines divide paragraphs. The text stays as it is."""

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.parsed_document import Block, Parsed, whole
from tasks.documents.parsing.text_encoding import decode

_MEDIA_TYPE = "text/plain"


def parse_text(data: bytes) -> Parsed:
    """The text and its paragraphs.

    Raises:
        DocumentFailed: `empty_document`, `document_too_large`, `unknown_encoding`, `missing_parser`.
    """
    text = decode(data)
    return whole(text, paragraphs(text), _MEDIA_TYPE)


def paragraphs(text: str) -> list[Block]:
    """Blocks of lines that are not blank."""
    blocks: list[Block] = []
    start = end = -1
    position = 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            start = position if start < 0 else start
            end = position + len(line.rstrip("\n"))
        elif start >= 0:
            blocks.append(Block("paragraph", start, end))
            start = -1
        position += len(line)
    if start >= 0:
        blocks.append(Block("paragraph", start, end))
    return blocks


TEXT = DocumentFormat(_MEDIA_TYPE, "plain text", "text", parse_text, harmless=True)
