"""The plot of the long ingestion over time: documents per minute, and the memory of every process. SVG by hand."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

Sample = Mapping[str, float]

_LEFT, _WIDTH, _HEIGHT, _GAP, _NAMES = 60, 620, 150, 56, 190
_COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#ea580c", "#0891b2", "#64748b", "#111827")
_MINUTE_S = 60.0
_TICKS = 4


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Writes the file. `samples` are those of `bench.scenarios.million`."""
    memory = {key.removesuffix("_mb"): [sample[key] for sample in samples] for key in samples[0] if key.endswith("_mb")}
    minutes, rates = per_minute(samples)
    times = [sample["seconds"] / _MINUTE_S for sample in samples]
    end = times[-1]
    parts = [
        _panel(20, "documents loaded per minute", end, {"": (minutes, rates)}),
        _panel(20 + _HEIGHT + _GAP, "memory, MB (redis_used: what Redis counts itself)", end, _named(times, memory)),
    ]
    width, height = _LEFT + _WIDTH + _NAMES, 2 * (_HEIGHT + _GAP) + 20
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n' + "".join(parts) + "</svg>\n"
    )


def per_minute(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """Ends of whole minutes, and documents loaded in each; a shorter run has ten parts, scaled to a minute."""
    seconds, documents = ([sample[key] for sample in samples] for key in ("seconds", "documents"))
    step = _MINUTE_S if seconds[-1] >= 10 * _MINUTE_S else seconds[-1] / 10
    ends = np.arange(1, int(seconds[-1] / step + 1e-9) + 1) * step
    counts = np.diff(np.interp(ends, seconds, documents), prepend=documents[0])
    return (ends / _MINUTE_S).tolist(), (counts * _MINUTE_S / step).tolist()


def _named(times: list[float], values: Mapping[str, list[float]]) -> dict[str, tuple[list[float], list[float]]]:
    """Lines by their names, the highest first."""
    ordered = sorted(values, key=lambda name: -values[name][-1])
    return {name: (times, values[name]) for name in ordered}


def _panel(top: int, title: str, end: float, lines: Mapping[str, tuple[list[float], list[float]]]) -> str:
    most = _round(max(max(values) for _, values in lines.values()))
    bottom = top + _HEIGHT
    parts = [f'<text x="{_LEFT}" y="{top - 6}" font-weight="bold">{escape(title)}</text>\n']
    for tick in range(_TICKS + 1):
        y = bottom - _HEIGHT * tick / _TICKS
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{_WIDTH}" stroke="#e5e7eb"/>\n')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * tick / _TICKS:,.0f}</text>\n')
        x = _LEFT + _WIDTH * tick / _TICKS
        parts.append(f'<text x="{x:.0f}" y="{bottom + 15}" text-anchor="middle">{end * tick / _TICKS:.1f} min</text>\n')
    for number, (name, (times, values)) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_LEFT + _WIDTH * time / end:.1f},{bottom - _HEIGHT * value / most:.1f}"
            for time, value in zip(times, values, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>\n')
        if name:
            label = f"{name}: at most {max(values):,.0f}"
            y = top + 10 + 15 * number
            parts.append(f'<text x="{_LEFT + _WIDTH + 8}" y="{y}" fill="{colour}">{escape(label)}</text>\n')
    return "".join(parts)


def _round(value: float) -> float:
    """The next number above it that begins with 1, 2, 4 or 8 and goes on with zeros."""
    size = 10.0 ** np.floor(np.log10(max(value, 1.0)))
    return float(next(step * size for step in (1, 2, 4, 8, 10) if step * size >= value))
