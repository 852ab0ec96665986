"""The plot of the README: embedq beside the usual designs and peers, as SVG."""

from pathlib import Path
from typing import TYPE_CHECKING

from bench.baselines import DESIGNS
from bench.report.catalog import FIGURES, Figure
from bench.report.results import Results
from bench.report.table import cell, peers_of
from bench.servers.server import PRODUCT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PLOTTED = ("passages_per_s", "queries_32_per_s", "queries_32_p99_ms", "under_bulk_p99_ms")
_OURS, _OTHERS = "#2563eb", "#9ca3af"


class NoPlotError(Exception):
    """There is nothing to draw with, or nothing to draw."""


def draw(results: Results, path: Path) -> None:
    """Writes one row of bar charts.

    Raises:
        NoPlotError: matplotlib is not installed, or the results hold none of the figures.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra: only who draws needs it
        from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - as above
    except ImportError:
        raise NoPlotError("The plot needs matplotlib: pip install --editable '.[bench]'.") from None
    wanted = [figure for figure in FIGURES if figure.key in _PLOTTED and figure.key in results.keys()]  # noqa: SIM118 - no dict
    if not wanted:
        raise NoPlotError(f"These results hold none of {', '.join(_PLOTTED)}.")
    with mpl.rc_context({"svg.hashsalt": "embedq", "svg.fonttype": "none", "font.size": 9}):
        canvas = Canvas(figsize=(3 * len(wanted), 2.4), layout="constrained")
        for figure, axes in zip(wanted, canvas.subplots(1, len(wanted), squeeze=False)[0], strict=True):
            _bars(axes, figure, results)
        canvas.savefig(path, metadata={"Date": None})  # without a date: equal results give an equal file


def _bars(axes: "Axes", figure: Figure, results: Results) -> None:
    servers = [name for name in (*DESIGNS, *peers_of(results), PRODUCT) if results.spread(name, figure.key)]
    spreads = [spread for name in servers if (spread := results.spread(name, figure.key))]
    bars = axes.barh(
        servers, [spread.median for spread in spreads], color=[_OURS if s == PRODUCT else _OTHERS for s in servers]
    )
    axes.bar_label(bars, [cell(spread).partition(" ")[0] for spread in spreads], padding=3)
    better = "more" if figure.more_is_better else "less"
    title = figure.title.replace(", ", "\n", 1)
    unit = "per second" if figure.unit == "/s" else figure.unit
    axes.set_title(f"{title}\n{unit}, {better} is better", fontsize=8)
    axes.margins(x=0.25)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
