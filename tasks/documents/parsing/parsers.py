"""Which parser reads what."""

from collections.abc import Callable
from typing import TypeAlias

from tasks.documents.parsing.docx import parse_docx
from tasks.documents.parsing.eml import parse_eml
from tasks.documents.parsing.html import parse_html
from tasks.documents.parsing.markdown import parse_markdown
from tasks.documents.parsing.notebook import parse_notebook
from tasks.documents.parsing.parsed_document import Parsed
from tasks.documents.parsing.pdf import parse_pdf
from tasks.documents.parsing.plain_text import parse_text
from tasks.documents.parsing.sniff import DOCX, EML, HTML, MARKDOWN, NOTEBOOK, PDF, TEXT

Parse: TypeAlias = Callable[[bytes], Parsed]

PARSERS: dict[str, Parse] = {
    TEXT: parse_text,
    MARKDOWN: parse_markdown,
    HTML: parse_html,
    PDF: parse_pdf,
    DOCX: parse_docx,
    EML: parse_eml,
    NOTEBOOK: parse_notebook,
}
"""Media type -> parser. Libraries are imported by the parsers, when they are first used."""

HARMLESS = frozenset({TEXT, MARKDOWN})
"""Parsers in Python alone, linear in the size of what they read: small documents need no process of their own."""
MAX_HARMLESS_BYTES = 256 * 1024
