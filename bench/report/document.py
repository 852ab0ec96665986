"""The generated section of docs/performance.md."""

from pathlib import Path

BEGIN = "<!-- begin generated: python -m bench --write-docs RESULTS.json -->"
END = "<!-- end generated -->"


class NoSectionError(Exception):
    """The document has no place for a table."""


def replace_section(document: str, content: str) -> str:
    """The document with `content` between the markers.

    Raises:
        NoSectionError: a marker is missing.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise NoSectionError(f"The document needs the lines {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n\n{content.strip()}\n\n{END}{after}"


def write_section(path: Path, content: str) -> None:
    """Replaces the section in the file. Raises like `replace_section`."""
    path.write_text(replace_section(path.read_text(), content))
