"""Jupyter notebooks (nbformat 3 and 4): prose and code of the cells, without their outputs."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tasks.ingestion.parsing.extracted import Extracted, check_chars, clean
from tasks.ingestion.parsing.markdown import first_heading, without_embedded
from tasks.ingestion.parsing.refusals import corrupt, no_text

_BACKTICKS = re.compile(r"`++")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")
_LEVELS = range(1, 7)


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
        sheets = notebook.get("worksheets") or [notebook]
        cells = [text for sheet in sheets for cell in sheet["cells"] if (text := _cell(cell, kernel)).strip()]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise corrupt("a Jupyter notebook") from None
    if not cells:
        raise no_text()
    text = clean("\n\n".join(cells))
    check_chars(len(text))
    return Extracted(text, "markdown", first_heading(text))


def _cell(cell: dict[str, Any], kernel: str) -> str:
    source = cell.get("source", cell.get("input", ""))
    text = (source if isinstance(source, str) else "".join(source)).strip("\r\n")
    match cell.get("cell_type"):
        case "code" if text.strip():
            longest = max(map(len, _BACKTICKS.findall(text)), default=0)
            fence = "`" * max(3, longest + 1)
            return f"{fence}{_named(cell.get('language')) or kernel}\n{text}\n{fence}"
        case "heading":  # of nbformat 3
            level = cell.get("level")
            number = int(level) if isinstance(level, float) and level in _LEVELS else 1
            return f"{'#' * number} {' '.join(text.split())}"
        case _:
            return without_embedded(text)


def _language(metadata: dict[str, Any]) -> str:
    """Of the kernel, as it is written behind a fence; "" if nobody knows."""
    told: Iterator[Any] = (metadata.get(where) or {} for where in ("kernelspec", "language_info"))
    kernelspec, info = told
    return _named(kernelspec.get("language")) or _named(info.get("name"))


def _named(language: Any) -> str:
    return language if isinstance(language, str) and _LANGUAGE.fullmatch(language) else ""
