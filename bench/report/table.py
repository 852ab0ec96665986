"""Results as a Markdown table that can be read as plain text too."""

from collections.abc import Sequence

from bench.report.catalog import Figure, figures
from bench.report.results import Results, Spread
from bench.servers.server import BARE, PRODUCT

REFERENCE = "locked"
"""The best of the usual designs: what a gain is stated against."""
_WELL_KNOWN = (PRODUCT, BARE, "blocking", "to_thread", "locked")


def render(results: Results) -> str:
    """Header, table and notes."""
    header = "\n".join(f"* {name}: {value}" for name, value in results.header.items())
    notes = "\n".join(f"* {note}" for note in results.notes)
    parts = [header, "\n".join(_aligned(_rows(results))), f"Notes:\n\n{notes}" if notes else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(value: float) -> str:
    """Three digits that mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def cell(spread: Spread | None) -> str:
    """Median, and the extremes where they differ; empty when it was not measured."""
    if spread is None:
        return ""
    if spread.least == spread.most:
        return shown(spread.median)
    return f"{shown(spread.median)} ({shown(spread.least)} to {shown(spread.most)})"


def ratio(figure: Figure, ours: Spread | None, other: Spread | None, *, of_ceiling: bool = False) -> str:
    """How many times better our median is, or which part of the ceiling it reaches; empty without both."""
    if ours is None or other is None or figure.more_is_better is None or not ours.median or not other.median:
        return ""
    better = ours.median / other.median if figure.more_is_better else other.median / ours.median
    return f"{better:.2f}" if of_ceiling else f"{shown(better)}x"


def _rows(results: Results) -> list[list[str]]:
    servers = sorted(results.values, key=lambda name: (_WELL_KNOWN.index(name) if name in _WELL_KNOWN else 99, name))
    of_bare = PRODUCT in servers and BARE in servers
    gain = PRODUCT in servers and REFERENCE in servers
    titles = ["figure", "unit", *servers, *(["of bare"] if of_bare else []), *(["gain"] if gain else [])]
    rows = [titles, ["---", "---", *["---:"] * (len(titles) - 2)]]
    for figure in figures(results.keys()):
        row = [figure.title, figure.unit, *(cell(results.spread(server, figure.key)) for server in servers)]
        ours = results.spread(PRODUCT, figure.key)
        if of_bare:
            row.append(ratio(figure, ours, results.spread(BARE, figure.key), of_ceiling=True))
        if gain:
            row.append(ratio(figure, ours, results.spread(REFERENCE, figure.key)))
        rows.append(row)
    return rows


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
