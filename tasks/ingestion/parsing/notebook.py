"""Jupyter notebooks (nbformat 4): prose and code of the cells, without their outputs."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tasks.ingestion.parsing.extracted import Extracted, joined
from tasks.ingestion.parsing.html_to_markdown import Passage
from tasks.ingestion.parsing.markdown import closed, first_heading, without_embedded
from tasks.ingestion.parsing.refusals import corrupt

_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")


def read_notebook(data: bytes) -> Extracted:
    """The prose as it is, and the code between fences.

    Raises:
        DocumentFailed: `corrupt_document`, `no_text`, `document_too_large`.
    """
    try:
        # Not orjson, which refuses NaN and halves of surrogate pairs: outputs have both. An integer without end is no
        # error as a float; `int` refuses more than 4,300 digits.
        notebook = json.loads(data, strict=False, parse_int=float)
        kernel = _language(notebook.get("metadata") or {})
        cells = [text for cell in notebook["cells"] if (text := _cell(cell, kernel)).strip()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise corrupt("a Jupyter notebook") from None
    found = joined(cells)
    return replace(found, title=first_heading(found.text))


def _cell(cell: dict[str, Any], kernel: str) -> str:
    source = cell.get("source") or ""
    text = (source if isinstance(source, str) else "".join(source)).strip("\r\n")
    if cell.get("cell_type") == "code" and text.strip():
        return Passage("code", text, language=kernel).markdown()
    return closed(without_embedded(text))


def _language(metadata: dict[str, Any]) -> str:
    """Of the kernel, as it is written behind a fence; "" if nobody knows."""
    told: Iterator[Any] = (metadata.get(where) or {} for where in ("kernelspec", "language_info"))
    kernelspec, info = told
    return _named(kernelspec.get("language")) or _named(info.get("name"))


def _named(language: Any) -> str:
    return language if isinstance(language, str) and _LANGUAGE.fullmatch(language) else ""
