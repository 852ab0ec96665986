"""What to do about an error, for the console: taken from the tables of the documentation, where it is written once.

`python -m api.document` writes it into a script of the console; a test fails while the script is not up to date.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

SCRIPT = Path("api/console/static/advice_texts.js")
_TABLES = {
    "request": ("docs/http.md", "## Errors"),
    "text": ("docs/http.md", "### Errors of one text"),
    "waiting": ("docs/http.md", "## Why something waits"),
    "batch": ("docs/batches.md", "## Errors of a file"),
    "line": ("docs/batches.md", "## Errors of a line"),
    "document": ("docs/ingestion.md", "## When a document fails"),
}
"""Where codes come from, as the console calls it: the page and the heading above the table."""
_CODE = re.compile(r"`([a-z_]+)`")


def read_advice(root: Path) -> dict[str, dict[str, str]]:
    """Sentences by code, for each place that codes come from."""
    return {
        place: dict(_rows((root / page).read_text(encoding="utf-8"), heading))
        for place, (page, heading) in _TABLES.items()
    }


def script(advice: Mapping[str, Mapping[str, str]]) -> str:
    """The module of the console."""
    table = orjson.dumps(advice, option=orjson.OPT_INDENT_2).decode()
    return (
        "// Written by `python -m api.document` from the tables of errors in docs/. Change those.\n"
        f"export const TEXTS = {table};\n"
    )


def _rows(page: str, heading: str) -> Iterator[tuple[str, str]]:
    """Of the table whose header has a column of codes: each code with the text of the last column."""
    section = page.partition(f"\n{heading}\n")[2]
    column = None
    for line in section.splitlines():
        if not line.startswith("|"):
            if column is not None:
                return
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if column is None:
            column = max(at for at, cell in enumerate(cells) if cell.strip("`").endswith("code"))
        else:
            yield from ((code, _sentence(cells[-1])) for code in _CODE.findall(cells[column]))


def _sentence(cell: str) -> str:
    alone = re.sub(r" \((?:\[[^\]]+\]\([^)]+\)|see below)\)", "", cell)  # the console has no place to refer to
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", alone).replace("`", "").replace("\\|", "|")
    return f"{text[0].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")
