"""Results as a Markdown table that can be read as plain text too."""

from collections.abc import Sequence

from bench.baselines import DESIGNS
from bench.report.catalog import Figure, figures
from bench.report.results import Results, Spread
from bench.servers.server import BARE, PRODUCT

REFERENCE = "locked"
"""The best of the usual designs: what a gain is stated against."""
EQUAL_FIDELITY = 0.9999
"""From this cosine to the library's float32 vectors on, a peer computes the same as embedq."""
_FIDELITY = "fidelity_least"
_OURS = (PRODUCT, BARE, *DESIGNS)


def render(results: Results) -> str:
    """Header, table and notes."""
    header = "\n".join(f"* {name}: {value}" for name, value in results.header.items())
    notes = "\n".join(f"* {note}" for note in results.notes)
    parts = [header, "\n".join(_aligned(_rows(results))), f"Notes:\n\n{notes}" if notes else ""]
    return "\n\n".join(part for part in parts if part) + "\n"


def shown(value: float, digits: int | None = None) -> str:
    """Three digits that mean something, or so many behind the point."""
    if digits is not None:
        return f"{value:.{digits}f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def cell(spread: Spread | None, digits: int | None = None) -> str:
    """Median, and the extremes where they differ; empty when it was not measured."""
    if spread is None:
        return ""
    if spread.least == spread.most:
        return shown(spread.median, digits)
    return f"{shown(spread.median, digits)} ({shown(spread.least, digits)} to {shown(spread.most, digits)})"


def ratio(figure: Figure, ours: Spread | None, other: Spread | None, *, of_ceiling: bool = False) -> str:
    """How many times better our median is, or which part of the ceiling it reaches; empty without both."""
    if ours is None or other is None or figure.more_is_better is None or not ours.median or not other.median:
        return ""
    better = ours.median / other.median if figure.more_is_better else other.median / ours.median
    return f"{better:.2f}" if of_ceiling else f"{shown(better)}x"


def peers_of(results: Results) -> list[str]:
    """The servers of others in these results."""
    return sorted(name for name in results.values if name not in _OURS)


def best_peer(results: Results, figure: Figure) -> str | None:
    """The peer of equal fidelity with the best median; None if there is none, or if nothing is better or worse."""
    medians = {
        name: spread.median
        for name in peers_of(results)
        if (fidelity := results.spread(name, _FIDELITY)) and fidelity.least >= EQUAL_FIDELITY
        if (spread := results.spread(name, figure.key))
    }
    if not medians or figure.more_is_better is None:
        return None
    return (max if figure.more_is_better else min)(medians, key=medians.__getitem__)


def _rows(results: Results) -> list[list[str]]:
    known = [name for name in _OURS if name in results.values]
    servers = [*known, *peers_of(results)]
    columns = {
        "of bare": PRODUCT in known and BARE in known,
        "gain": PRODUCT in known and REFERENCE in known,
        "best peer": PRODUCT in known and servers != known,
    }
    titles = ["figure", "unit", *servers, *(title for title, wanted in columns.items() if wanted)]
    rows = [titles, ["---", "---", *["---:"] * (len(titles) - 2)]]
    for figure in figures(results.keys()):
        cells = (cell(results.spread(server, figure.key), figure.digits) for server in servers)
        ratios = _ratios(results, figure)
        rows.append([figure.title, figure.unit, *cells, *(ratios[title] for title in titles[2 + len(servers) :])])
    return rows


def _ratios(results: Results, figure: Figure) -> dict[str, str]:
    ours = results.spread(PRODUCT, figure.key)
    best = best_peer(results, figure)
    beside = ratio(figure, ours, results.spread(best, figure.key)) if best else ""
    return {
        "of bare": ratio(figure, ours, results.spread(BARE, figure.key), of_ceiling=True),
        "gain": ratio(figure, ours, results.spread(REFERENCE, figure.key)),
        "best peer": f"{beside} ({best})" if beside else "",
    }


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
