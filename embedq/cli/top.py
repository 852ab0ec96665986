"""`embedq top`: what the service does now and did in the last hour, in a terminal, as lines or as JSON."""

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from embedq import environment
from embedq.cli.exit_codes import OK, UsageError
from embedq.cli.options import checked_address, server_options, within
from embedq.cli.output import NO_STDOUT, Output, printable
from embedq.cli.progress import shown_rate
from embedq.errors import EmbedqClientError, RefusedError
from embedq.transport import Call, Transport

_CALL_S = 30.0
_SILENCE_S = 20.0
"""The server sends something every two seconds."""
_PLAIN_INTERVAL_S = 10.0
_HOUR_STEPS = 360
_PLOT_WIDTH = 60
_BARS = "▁▂▃▄▅▆▇█"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--once", action="store_true", help="print the present state and leave")
    server_options(parser, timeout_s=None)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The exit code."""
    if sys.stdout is None:
        raise UsageError(NO_STDOUT)
    return asyncio.run(within(args.timeout, _top(args, Output(args.json))))


async def _top(args: argparse.Namespace, output: Output) -> int:
    # rich is optional: without it, a terminal gets lines too.
    live = not (args.once or args.json) and sys.stdout.isatty() and find_spec("rich") is not None
    view = View(args.url or environment.server_url())

    def retry(error: EmbedqClientError, delay_s: float) -> None:
        if live:
            view.notice = f"{error.code}, trying again"
            show()
        else:
            output.retry(error, delay_s)

    with checked_address():
        transport = Transport(view.address, api_key=environment.api_key(), on_retry=retry)
    async with transport:
        with _drawn(view) if live else nullcontext(lambda: None) as show:
            state = await transport.call(Call("GET", "v1/service"), timeout_s=_CALL_S)
            history = await transport.call(Call("GET", "v1/service/history"), timeout_s=_CALL_S)
            with _readable():
                view.begin(state.json(), history.json())
                text = view.to_text()
            if args.once:
                _print(output, [state.json(), history.json()], text)
                return OK
            show()
            await _follow(transport, view, output, show if live else None)
    return OK


async def _follow(transport: Transport, view: "View", output: Output, show: Callable[[], None] | None) -> None:
    printed_s = -_PLAIN_INTERVAL_S
    async with aclosing(_events(transport.lines("v1/service/events", silence_s=_SILENCE_S))) as events:
        async for name, data in events:
            with _readable():
                view.take(name, data)
                if show:
                    show()
            if output.json_lines:
                output.result("", data if name == "service" else {"object": "history", **data})
            elif not show and name == "service" and time.monotonic() >= printed_s + _PLAIN_INTERVAL_S:
                printed_s = time.monotonic()
                _print(output, [], f"{view.to_text()}\n")


def _print(output: Output, objects: Sequence[Mapping[str, Any]], text: str) -> None:
    if output.json_lines:
        for fields in objects:
            output.result("", fields)
    else:
        output.result(text, {})


async def _events(lines: AsyncGenerator[str]) -> AsyncGenerator[tuple[str, Any]]:
    """Names and data of server-sent events, whose data are one line of JSON each."""
    name = ""
    async with aclosing(lines):
        async for line in lines:
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                with _readable():
                    data = json.loads(value)
                yield name, data


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        message = "The answer does not describe a service. Is the address that of an embedq server of this version?"
        raise RefusedError(message, code="unexpected_answer") from error


# What is shown.


@dataclass(frozen=True, slots=True)
class Grid:
    """Lines of cells under a heading. `numbers`: columns that are aligned to the right. `alarms`: rows to look at."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    alarms: frozenset[int] = frozenset()

    def to_text(self) -> str:
        """Aligned columns."""
        lines = [list(self.heading), *map(list, self.rows)] if self.heading else list(map(list, self.rows))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if index in self.numbers else cell.ljust(width)
                for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


_SERIES: Sequence[tuple[str, str, Callable[[float], str]]] = (
    ("queries", "queries", shown_rate),
    ("passages", "passages", shown_rate),
    ("p50_ms", "p50", lambda ms: f"{ms:,.1f} ms"),
    ("p99_ms", "p99", lambda ms: f"{ms:,.1f} ms"),
    ("backlog_seconds", "backlog", lambda seconds: f"{seconds:,.1f} s"),
    ("errors", "errors", shown_rate),
)
"""Name in the history, what it is called here, and how one number is written."""


@dataclass
class View:
    """What is known of the service.

    Attributes:
        address: of the server.
        notice: why nothing new comes; "" while all is well.
    """

    address: str
    notice: str = ""
    _state: Mapping[str, Any] = field(default_factory=dict)
    _series: dict[str, deque[float | None]] = field(default_factory=dict)
    _at: int = 0
    _step_s: int = 10

    def begin(self, state: Mapping[str, Any], history: Mapping[str, Any]) -> None:
        """Takes the answers of `GET /v1/service` and `GET /v1/service/history`."""
        self._state, self._step_s = state, history["step"]
        self._series = {name: deque(history["series"][name], _HOUR_STEPS) for name, _, _ in _SERIES}
        self._at = history["from"] + (len(history["series"]["queries"]) - 1) * self._step_s

    def take(self, name: str, data: Mapping[str, Any]) -> None:
        """Takes an event of `GET /v1/service/events`."""
        self.notice = ""
        if name == "service":
            self._state = data
        elif name == "history":
            missed = min(_HOUR_STEPS, max(0, (data["at"] - self._at) // self._step_s))
            self._at = max(self._at, data["at"])
            for series, numbers in self._series.items():
                numbers.extend([None] * (missed - 1) + [data["series"][series]] if missed else [])

    def to_text(self) -> str:
        """All of it in lines."""
        return "\n".join([*self.titles(), *(f"\n{grid.to_text()}" for grid in self.grids())])

    def titles(self) -> list[str]:
        """What stands above the grids."""
        state, redis = self._state, self._state["redis"]
        title = f"embedq {state['version']} at {self.address}, up {_span(state['time'] - state['started_at'])}"
        told = f"Redis answers, {redis['memory_percent']} % of its memory in use"
        if not redis["up"]:
            seen = redis["seen_at"]
            told = "Redis does not answer" + (f" since {_clock(seen)}; what follows is from then" if seen else "")
        return [printable(line) for line in (title, told, self.notice) if line]

    def grids(self) -> list[Grid]:
        """The last hour, models, workers."""
        grids = [self._history(), self._models(), self._workers()]
        return [grid for grid in grids if grid.rows]

    def _history(self) -> Grid:
        rows = []
        for name, called, write in _SERIES:
            numbers = self._series[name]
            rows.append((called, "" if numbers[-1] is None else write(numbers[-1]), _plot(numbers)))
        return Grid(("last hour", "now", ""), rows, numbers=frozenset({1}))

    def _models(self) -> Grid:
        models = self._state["models"]
        rows = [
            (
                printable(model["id"]),
                printable(" ".join(model[fact] or "" for fact in ("device", "compute", "precision"))),
                f"{len(model['workers']):,}" if model["workers"] else "none",
                f"{model['tokens_per_second'] or 0:,.0f}",
                *(_lane(model["lanes"][lane]) for lane in ("online", "bulk")),
                f"{model['leases']:,}",
            )
            for model in models
        ]
        documents = self._state["documents"]
        waiting = f"{documents['tasks']:,} tasks" if documents["tasks"] else "-"
        rows.append(("(documents)", "", f"{len(documents['workers']):,}" if documents["workers"] else "none", "",
                     "", waiting, ""))  # fmt: skip
        alarms = frozenset(index for index, row in enumerate(rows) if row[2] == "none")
        heading = ("model", "computes", "workers", "tokens/s", "online", "bulk", "claims")
        return Grid(heading, rows, numbers=frozenset({2, 3, 6}), alarms=alarms)

    def _workers(self) -> Grid:
        now = self._state["time"]
        rows = [
            (
                *(printable(str(worker[name])) for name in ("id", "host", "pid")),
                f"{worker['tokens_per_second']:,.0f}",
                f"{worker['rss_bytes'] / 2**20:,.0f} MB",
                f"{worker['items']:,}",
                _span(now - worker["started_at"]),
            )
            for model in self._state["models"]
            for worker in model["workers"]
        ]
        for worker in self._state["documents"]["workers"]:
            identity = (printable(str(worker[name])) for name in ("id", "host", "pid"))
            rows.append(
                (*identity, "", f"{worker['rss_bytes'] / 2**20:,.0f} MB", "", _span(now - worker["started_at"]))
            )
        heading = ("worker", "host", "pid", "tokens/s", "memory", "texts", "up")
        return Grid(heading, rows, numbers=frozenset({2, 3, 4, 5, 6}))


def _lane(lane: Mapping[str, Any]) -> str:
    if not lane["tasks"]:
        return "-"
    seconds = "" if lane["seconds"] is None else f", {_span(lane['seconds'])}"
    return f"{lane['tasks']:,} tasks{seconds}"


def _plot(numbers: Sequence[float | None] | deque[float | None]) -> str:
    """The numbers as bars, the newest at the right; several share a bar. No data: a space."""
    wide = -(-_HOUR_STEPS // _PLOT_WIDTH)
    newest_first = list(numbers)[::-1]
    pieces = [newest_first[start : start + wide] for start in range(0, len(newest_first), wide)][::-1]
    means = [sum(there) / len(there) if (there := [n for n in piece if n is not None]) else None for piece in pieces]
    top = max((mean for mean in means if mean is not None), default=0) or 1
    return "".join(" " if mean is None else _BARS[min(7, int(8 * mean / top))] for mean in means)


def _span(seconds: float) -> str:
    """A time in its two largest units, for people."""
    if seconds < 100:  # noqa: PLR2004
        return f"{max(0.0, seconds):.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86_400)
    if not hours:
        return f"{minutes} min"
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} min"


def _clock(unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


@contextmanager
def _drawn(view: View) -> Iterator[Callable[[], None]]:
    """The whole terminal as long as the block runs; the function that draws it anew."""
    # Slow to import for a command that shows no screen.
    from rich import console, live, table, text  # noqa: PLC0415

    def drawn(grid: Grid) -> table.Table:
        shown = table.Table(box=None, pad_edge=False, header_style="bold", show_header=bool(grid.heading))
        for index, name in enumerate(grid.heading):
            side = "right" if index in grid.numbers else "left"
            shown.add_column(name, justify=side, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
        for index, row in enumerate(grid.rows):
            # As text: a name is never read as markup.
            shown.add_row(*map(text.Text, row), style="red" if index in grid.alarms else "")
        return shown

    def draw() -> console.Group:
        try:
            titles, grids = view.titles(), view.grids()
        except KeyError:  # nothing is known yet
            return console.Group(text.Text(printable(view.notice or f"asking {view.address}")))
        parts: list[console.RenderableType] = [text.Text(line) for line in titles]
        for grid in grids:
            parts += [text.Text(), drawn(grid)]
        return console.Group(*parts)

    with live.Live(draw(), screen=True, auto_refresh=False) as display:
        yield lambda: display.update(draw(), refresh=True)
