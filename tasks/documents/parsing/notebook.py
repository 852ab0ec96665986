"""Jupyter notebooks (nbformat 3 and 4): prose and code of the cells, without their outputs."""

from typing import Any

import orjson

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.markdown import parse_markdown
from tasks.documents.parsing.parsed_document import Builder, Parsed
from tasks.documents.parsing.refusals import corrupt

_MEDIA_TYPE = "application/x-ipynb+json"


def parse_notebook(data: bytes) -> Parsed:
    """A block for each code cell, and those of the Markdown in the others.

    Raises:
        DocumentFailed: `corrupt_document`, `no_text`, `document_too_large`.
    """
    try:
        notebook = orjson.loads(data)
        sheets = notebook.get("worksheets") or [notebook]
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        sources = [(cell.get("cell_type"), _source(cell)) for cell in cells]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        raise corrupt("a Jupyter notebook") from None
    builder = Builder()
    title = None
    for kind, source in sources:
        if kind == "code":
            builder.add("code", source)
        elif source.strip():
            prose = parse_markdown(source.encode("utf-8", "replace"))
            title = title or prose.title
            for block in prose.blocks:
                builder.add(block.kind, prose.text[block.start : block.end], block.level)
    return builder.parsed(_MEDIA_TYPE, title)


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    return source if isinstance(source, str) else "".join(source)


NOTEBOOK = DocumentFormat(_MEDIA_TYPE, "Jupyter notebooks", "text", parse_notebook, endings=(".ipynb",))
