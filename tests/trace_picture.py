"""Draws docs/trace.svg from the spans of one real request: `python -m tests.trace_picture [FILE]`.

It starts Redis, a worker with the default model and the web tier, sends one call with 256 texts and `traceparent`, and
draws what a collector received.
"""

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from tests.collector import Collector, ReceivedSpan
from tests.processes import RedisServer, Roles, wait_until

DOCS = Path(__file__).resolve().parents[1] / "docs" / "trace.svg"
TEXTS = [f"Sentence number {number} says something else than the others do. " * 3 for number in range(256)]
COLOURS = {"embedq-api": "#2f6fb3", "embedq-worker": "#c2571a"}
WIDTH, NAMES, PLOT, ROW, HEAD = 960, 230, 640, 24, 64
HEADER = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">'
)
TITLE = "<title>One call of POST /v1/embeddings with 256 texts, as a collector of traces shows it</title>"


def main() -> None:
    """Entry point."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    spans = received_spans()
    file.write_text(drawn(spans), encoding="utf-8")
    print(f"{file}: {len(spans)} spans")  # noqa: T201 - a command


def received_spans() -> list[ReceivedSpan]:
    """The trace of one call, from a service of its own."""
    trace_id = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as name, Collector() as collector:
        folder = Path(name)
        os.environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_SAMPLER": "parentbased_always_off",  # but the one call
        }
        redis = RedisServer(folder / "redis").start()
        try:
            with Roles(folder, redis.url) as roles:
                roles.worker(compute="auto")
                api = roles.api()
                api.wait_ready()
                with api.client() as client:
                    client.post("/v1/embeddings", json={"input": TEXTS[::-1]}).raise_for_status()  # warms up
                    client.post(
                        "/v1/embeddings",
                        json={"input": [f"Now: {text}" for text in TEXTS]},
                        headers={"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"},
                    ).raise_for_status()
                wait_until(lambda: {"answer", "commit"} <= {span.name for span in collector.of(trace_id)})
        finally:
            redis.stop()
        return collector.of(trace_id)  # all: the roles have stopped


def in_order(spans: Sequence[ReceivedSpan], parent_id: str, depth: int = 0) -> Iterator[tuple[ReceivedSpan, int]]:
    """The spans below one as a tree is read, each with its depth."""
    for span in spans:
        if span.parent_id == parent_id:
            yield span, depth
            yield from in_order(spans, span.span_id, depth + 1)


def drawn(spans: Sequence[ReceivedSpan]) -> str:
    """The picture of a trace."""
    rows = list(in_order(spans, spans[0].parent_id))
    began, ended = spans[0].began_ns, max(span.ended_ns for span in spans)
    height = HEAD + ROW * len(rows) + 12
    whole = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    lines = [HEADER.format(width=WIDTH, height=height), TITLE, whole, *legend(), *scale(ended - began, height)]
    for place, (span, depth) in enumerate(rows):
        lines += row(span, depth, HEAD + ROW * place, (span.began_ns - began) * PLOT / (ended - began), ended - began)
    return "\n".join([*lines, "</svg>", ""])


def legend() -> Iterator[str]:
    """Which colour is which service."""
    for place, (service, colour) in enumerate(COLOURS.items()):
        x = NAMES + 140 * place
        yield f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="23" fill="#333">{service}</text>'


def scale(took_ns: int, height: int) -> Iterator[str]:
    """Times at the top, and a line down from each."""
    for part in (0, 0.25, 0.5, 0.75, 1):
        x = NAMES + PLOT * part
        yield f'<line x1="{x:.0f}" y1="{HEAD - 8}" x2="{x:.0f}" y2="{height - 8}" stroke="#dddddd"/>'
        yield f'<text x="{x:.0f}" y="{HEAD - 14}" text-anchor="middle" fill="#555">{took_ns * part / 1e6:.0f} ms</text>'


def row(span: ReceivedSpan, depth: int, y: int, from_left: float, whole_ns: int) -> list[str]:
    """One span: its name, its bar and how long it took."""
    took_ns = span.ended_ns - span.began_ns
    x, width = NAMES + from_left, max(2.0, took_ns * PLOT / whole_ns)
    return [
        f'<text x="{12 + 16 * depth}" y="{y + 16}" fill="#222">{escape(span.name)}{numbers(span)}</text>',
        f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="16" rx="2" fill="{COLOURS[span.service]}"/>',
        f'<text x="{x + width + 6:.1f}" y="{y + 16}" fill="#555">{took_ns / 1e6:.1f} ms</text>',
    ]


def numbers(span: ReceivedSpan) -> str:
    """What a span says of its size, for its row."""
    texts = span.attributes.get("embedq.texts") or span.attributes.get("embedq.claim.items")
    return f' <tspan fill="#777">{texts} texts</tspan>' if texts else ""


if __name__ == "__main__":
    main()
