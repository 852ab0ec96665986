"""`embedq top`: what it shows, and what becomes of a server that goes away, refuses or is none."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from embedq.cli import main
from embedq.cli.top import Grid, View
from embedq.errors import NotAuthenticatedError, UnreachableError
from embedq.retry import RetryPolicy
from embedq.transport import Transport
from tests.unit.embedq.scripted import HANG_UP, SILENCE, Answer, Request, Scripted, problem, scripted

QUICK = RetryPolicy(first_delay_s=0.001, max_delay_s=0.001, first_contact_s=60, unreachable_s=60)
SERIES = ("queries", "passages", "p50_ms", "p99_ms", "backlog_seconds", "errors")


def service(**changes: Any) -> dict[str, Any]:
    worker = {
        "id": "w-1", "pid": 7, "host": "here", "started_at": 1000.0, "tokens_per_second": 5210.4,
        "rss_bytes": 500 * 2**20, "items": 81234, "forward_passes": 2904, "streams": 2,
    }  # fmt: skip
    model = {
        "id": "m", "names": ["m"], "dimension": 384, "max_tokens": 256, "device": "cpu", "compute": "openvino",
        "precision": "bf16", "tokens_per_second": 5210.4, "workers": [worker], "leases": 2,
        "lanes": {
            "online": {"tasks": 2, "tokens": 140, "seconds": 0.03},
            "bulk": {"tasks": 1, "tokens": 884_000, "seconds": 7300.0},
        },
    }  # fmt: skip
    return {
        "object": "service", "version": "9.9", "started_at": 1000, "time": 4720.0,
        "redis": {"up": True, "memory_percent": 3, "seen_at": 4719.5}, "models": [model],
        "documents": {"workers": [], "tasks": 3}, **changes,
    }  # fmt: skip


def history(*queries: float | None) -> dict[str, Any]:
    return {"object": "history", "step": 10, "from": 1000, "series": {name: list(queries) for name in SERIES}}


def step(at: int, number: float) -> dict[str, Any]:
    return {"at": at, "series": dict.fromkeys(SERIES, number)}


def view(state: dict[str, Any] | None = None, *queries: float | None) -> View:
    shown = View("http://here:8000")
    shown.begin(state or service(), history(*(queries or (1.0,))))
    return shown


def test_everything_in_lines() -> None:
    text = view(None, None, 1.0, 0.25).to_text()

    lines = {line.split("  ")[0]: line.split() for line in text.splitlines() if line}
    assert text.startswith("embedq 9.9 at http://here:8000, up 1 h 2 min\nRedis answers, 3 % of its memory in use\n\n")
    assert lines["queries"][1] == "0.25/s"
    assert lines["p50"][1:3] == ["0.2", "ms"]
    assert " ".join(lines["m"]) == "m cpu openvino bf16 1 5,210 2 tasks, 0.0 s 1 tasks, 2 h 1 min 2"
    assert " ".join(lines["w-1"]) == "w-1 here 7 5,210 500 MB 81,234 1 h 2 min"
    assert " ".join(lines["(documents)"]) == "(documents) none 3 tasks"


def test_what_is_not_known_yet_and_what_is_missing() -> None:
    state = service()
    model = state["models"][0]
    model |= {"workers": [], "tokens_per_second": None, "device": None, "compute": None, "precision": None}
    model["lanes"]["bulk"]["seconds"] = None
    shown = view(state, None)

    history_grid, models = shown.grids()
    assert [row[1] for row in history_grid.rows] == [""] * 6
    assert models.alarms == {0, 1}
    assert models.rows[0][2:6] == ("none", "0", "2 tasks, 0.0 s", "1 tasks")


def test_while_redis_is_away_it_says_so() -> None:
    away = {"up": False, "memory_percent": 0, "seen_at": None}

    assert view(service(redis=away)).titles()[1] == "Redis does not answer"
    assert "what follows is from then" in view(service(redis=away | {"seen_at": 1000.0})).titles()[1]


def test_names_cannot_reach_the_terminal() -> None:
    state = service()
    state["models"][0]["id"] = "m\x1b[2J\r[red]"
    state["models"][0]["workers"][0]["host"] = "h\n\x07"

    text = view(state).to_text()
    assert "\x1b" not in text
    assert "m?[2J?[red]" in text
    assert "h??" in text


def test_what_stands_above_the_grids_cannot_reach_the_terminal() -> None:
    shown = view(service(version="9\x1b[2J"))
    shown.notice = "code\x1b]0;x\x07, trying again"
    assert not any("\x1b" in line or "\x07" in line for line in shown.titles())
    shown.take("service", service(version="9\x1b[2J", redis={"up": False, "memory_percent": 0, "seen_at": None}))
    shown.notice = "code\x1b]0;x\x07, trying again"
    assert not any("\x1b" in line or "\x07" in line for line in shown.titles())


def test_steps_that_were_missed_are_gaps() -> None:
    shown = view(None, 1.0, 2.0)  # steps that begin at 1000 and 1010
    for event in (step(1010, 9.0), step(1040, 4.0), step(1050, 5.0), step(10**7, 1.0)):
        shown.take("history", event)
        if event["at"] == 1050:
            assert list(shown._series["queries"]) == [1.0, 2.0, None, None, 4.0, 5.0]

    assert list(shown._series["queries"])[-2:] == [None, 1.0]
    assert len(shown._series["queries"]) == 360


@pytest.mark.parametrize(
    ("numbers", "plot"),
    [([], ""), ([None] * 3, " "), ([0.0] * 6, "▁"), ([1.0] * 6 + [0.5] * 6 + [None] * 6 + [0.0] * 6, "█▅ ▁")],
)
def test_the_plot(numbers: list[float | None], plot: str) -> None:
    shown = View("x")
    shown.begin(service(), history(*numbers) if numbers else history(None))

    assert shown.grids()[0].rows[0][2] == (plot or " ")


def test_columns_are_aligned() -> None:
    assert Grid(("a", "n"), [("long", "1"), ("b", "22")], frozenset({1})).to_text() == "a      n\nlong   1\nb     22"


def answers(request: Request) -> Answer:
    body = {"/v1/service": service(), "/v1/service/history": history(1.0)}.get(request.target)
    if body is not None:
        return Answer(200, body)
    events = f"retry: 1000\n\nevent: service\ndata: {json.dumps(service())}\n\n"
    events += f"event: history\ndata: {json.dumps(step(1010, 2.0))}\n\n"
    return Answer(200, events.encode(), {"content-type": "text/event-stream"})


def run(script: Scripted, *options: str, reply: Callable[[Request], Answer] | Answer = answers) -> int:
    script.answers = [reply]
    return main(["top", "--url", script.url, *options])


def test_once(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(elsewhere, "--once") == 0
    assert capsys.readouterr().out.startswith("embedq 9.9 at ")
    assert run(elsewhere, "--once", "--json") == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["object"] for one in objects] == ["service", "history"]


def key_expires(after: int) -> Callable[[Request], Answer]:
    """Answers so many streams; then the key is not known any more."""
    streams = [None] * after

    def reply(request: Request) -> Answer:
        if not request.target.endswith("/events"):
            return answers(request)
        if not streams:
            return problem(401, "invalid_api_key")
        streams.pop()
        return answers(request)

    return reply


def test_events_as_json_lines_also_of_a_stream_that_was_begun_anew(
    elsewhere: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(elsewhere, "--json", reply=key_expires(after=2)) == 3
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["object"] for one in objects] == ["service", "history"] * 2
    assert objects[1] == {"object": "history", **step(1010, 2.0)}


def test_without_a_terminal_it_prints_lines(elsewhere: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(elsewhere, reply=key_expires(after=2)) == 3
    assert capsys.readouterr().out.count("embedq 9.9 at ") == 1  # one in ten seconds


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "no rich"])
def test_a_terminal_whose_server_is_late(
    rich: bool, elsewhere: Scripted, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setitem(sys.modules, "rich.live", None)
    elsewhere.answers = [problem(503, "overloaded", retry_after="0"), answers, answers, key_expires(after=1)]
    assert main(["top", "--url", elsewhere.url]) == 3
    assert "embedq 9.9 at " in capsys.readouterr().out


def test_the_time_is_over(elsewhere: Scripted) -> None:
    assert run(elsewhere, "--timeout", "0.1", reply=SILENCE) == 5


@pytest.mark.parametrize(
    ("reply", "code", "told"),
    [
        (problem(401, "invalid_api_key"), 3, "invalid_api_key"),
        (problem(404, "route_not_found"), 3, "route_not_found"),
        (Answer(200, {"some": "thing"}), 3, "unexpected_answer"),
        (Answer(200, []), 3, "unexpected_answer"),
        (Answer(200, b"<html>"), 3, "unexpected_answer"),
    ],
)
def test_exit_codes(
    elsewhere: Scripted, reply: Answer, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(elsewhere, "--once", "--json", reply=reply) == code
    errors = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert errors[-1]["code"] == told


async def test_a_stream_that_breaks_is_begun_anew() -> None:
    trouble = [HANG_UP, problem(503, "overloaded", retry_after="0"), Answer(200, b"one\n"), HANG_UP]
    async with scripted(*trouble, Answer(200, b"two\n")) as server, Transport(server.url, policy=QUICK) as transport:
        lines = transport.lines("v1/service/events", silence_s=20)
        assert [await anext(lines), await anext(lines)] == ["one", "two"]
        await lines.aclose()


@pytest.mark.parametrize("end", [HANG_UP, SILENCE, Answer(200, b"")])
async def test_a_stream_that_stays_away_is_unreachable(end: Answer) -> None:
    impatient = RetryPolicy(first_delay_s=0.001, first_contact_s=0.05, unreachable_s=0.05)
    async with scripted(Answer(200, b"one\n"), end) as server, Transport(server.url, policy=impatient) as transport:
        lines = transport.lines("v1/service/events", silence_s=0.1)
        assert await anext(lines) == "one"
        with pytest.raises(UnreachableError):
            await anext(lines)


async def test_a_refused_stream_is_not_tried_again() -> None:
    async with (
        scripted(problem(401, "invalid_api_key")) as server,
        Transport(server.url, policy=QUICK) as transport,
    ):
        with pytest.raises(NotAuthenticatedError):
            await anext(transport.lines("v1/service/events", silence_s=20))
        assert len(server.requests) == 1
