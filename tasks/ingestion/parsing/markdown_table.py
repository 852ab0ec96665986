"""Rows of cells -> a table of Markdown."""

from collections.abc import Iterable, Sequence

from tasks.ingestion.parsing.extracted import check_chars

_HEADER_WITHIN = 8  # rows: below a longer list, two cells are no header


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """The table, its first row of several cells as header; a single cell is its text, no rows are "".

    Cells above the header, such as a title, stand above the table, whose parts would repeat them. Rows and columns
    without text, and empty cells at the end of a row, are left out: what lies far from the rest in a sheet would cost
    millions of bars.

    Raises:
        DocumentFailed: `document_too_large`.
    """
    kept, chars = list[list[str]](), 0
    for row in rows:
        cells = [" ".join(cell.split()).replace("|", "\\|") if cell else "" for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            continue
        kept.append(cells)
        chars += sum(map(len, cells))
        check_chars(chars)
    header_at = next((at for at, cells in enumerate(kept[:-1][:_HEADER_WITHIN]) if len(cells) - cells.count("") > 1), 0)
    above, kept = [cells[-1] for cells in kept[:header_at]], kept[header_at:]
    columns = sorted({at for cells in kept for at, cell in enumerate(cells) if cell})
    if len(kept) == len(columns) == 1:
        return kept[0][-1]
    lines, chars = list[str](), 0
    for cells in kept:
        width = len(cells)
        line = f"| {' | '.join([cells[at] for at in columns if at < width])} |"
        chars += len(line)
        check_chars(chars)
        lines.append(line)
    if lines:
        header = kept[0] + [""] * (columns[-1] + 1 - len(kept[0]))
        lines[0] = f"| {' | '.join(header[at] for at in columns)} |"
        lines.insert(1, "|" + " --- |" * len(columns))
    return "\n\n".join([*above, "\n".join(lines)])
