"""The generated sections of docs/performance.md and docs/reliability.md."""

from pathlib import Path

BEGIN = "<!-- begin generated: python -m bench --write-docs RESULTS.json -->"
END = "<!-- end generated -->"


class NoSectionError(Exception):
    """The document has no place for a table."""


def replace_section(document: str, content: str, begin: str = BEGIN) -> str:
    """The document with `content` between the markers `begin` and `END`.

    Raises:
        NoSectionError: a marker is missing.
    """
    before, found, rest = document.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise NoSectionError(f"The document needs the lines {begin} and {END}.")
    return f"{before}{begin}\n\n{content.strip()}\n\n{END}{after}"


def write_section(path: Path, content: str, begin: str = BEGIN) -> None:
    """Replaces the section in the file. Raises like `replace_section`."""
    path.write_text(replace_section(path.read_text(), content, begin))
