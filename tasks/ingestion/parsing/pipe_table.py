"""Rows of cells -> a table of Markdown."""

from collections.abc import Iterable, Sequence

from tasks.ingestion.parsing.extracted import check_chars


def pipe_table(rows: Iterable[Sequence[str]]) -> str:
    """The table, its first row that is not empty as header; a single cell is its text, no rows are "".

    Rows and columns without text, and empty cells at the end of a row, are left out: what lies far from the rest in a
    sheet would cost millions of bars.

    Raises:
        DocumentFailed: `document_too_large`.
    """
    kept, used, chars = list[list[str]](), set[int](), 0
    for row in rows:
        cells = [" ".join(cell.split()).replace("|", "\\|") if cell else "" for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            continue
        kept.append(cells)
        used.update(at for at, cell in enumerate(cells) if cell)
        chars += sum(map(len, cells))
        check_chars(chars)
    columns = sorted(used)
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
    return "\n".join(lines)
