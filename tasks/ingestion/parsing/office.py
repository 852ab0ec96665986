"""Readers of office documents, one file for each format."""

from tasks.ingestion.parsing.epub import read_epub
from tasks.ingestion.parsing.opendocument import read_odt
from tasks.ingestion.parsing.outlook import read_msg
from tasks.ingestion.parsing.restructured import read_rst
from tasks.ingestion.parsing.rich_text import read_rtf
from tasks.ingestion.parsing.slides import read_pptx

__all__ = ["read_epub", "read_msg", "read_odt", "read_pptx", "read_rst", "read_rtf"]
