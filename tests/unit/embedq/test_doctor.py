"""`embedq doctor`: what it says of each answer of a server."""

import sys
from typing import Any

import pytest

from embedq.cli import doctor
from embedq.cli.doctor import Finding, examine
from embedq.transport import Transport
from tests.unit.embedq.scripted import HANG_UP, Answer, problem, scripted

NOW = 1_000_000.0
FULL = {"memory_percent": 77, "limit_bytes": 100, "tasks_percent": 63, "queries_percent": 70}
CALM = FULL | {"memory_percent": 3}
WORKER: dict[str, Any] = {"deaths": 0, "died_at": None, "died_of": None}
DIED = {"deaths": 5, "died_at": NOW - 31, "died_of": "signal 9, SIGKILL"}
LOADING = {"model": "org/m", "source": "the hub", "since": NOW - 14}
CHECKS = {"object": "redis", "checks": [{"name": "mode", "fine": True, "detail": "standalone", "advice": ""}]}
FOREIGN = problem(403, "host_not_allowed", "Call it as localhost.")
NO_KEY = problem(401, "no_key", "A key.")


def service(workers: Any = (WORKER,), *, loading: Any = (), redis: Any = CALM, **more: Any) -> Answer:
    """The state of a service with one model, as its API tells it."""
    model = {"id": "m", "dimension": 3, "device": "cpu", "workers": [*workers], "loading": [*loading], **more}
    documents = {"workers": [WORKER], "absent_since": None}
    return Answer(200, {"object": "service", "time": NOW, "redis": redis, "models": [model], "documents": documents})


WELL = {
    "/health/live": Answer(200, {"status": "live"}),
    "/health/ready": Answer(200, {"status": "ready", "storage": None}),
    "/v1/service/redis": Answer(200, CHECKS),
    "/v1/service": service(),
}
PATHS = {name.rpartition("/")[2]: name for name in WELL} | {"redis": "/v1/service/redis"}


async def found(**answers: Answer) -> list[Finding]:
    """What is found wrong, or cannot be checked, where the answers of some paths are these."""
    given = WELL | {PATHS[name]: answer for name, answer in answers.items()}
    async with scripted(lambda request: given[request.target]) as server, Transport(server.url) as transport:
        return [finding async for finding in examine(transport) if not finding.fine or finding.advice]


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        (service(redis=FULL), "77 % used: queries and tasks are refused now"),
        (service(redis=FULL | {"memory_percent": 65}), "65 % used: tasks are refused now"),
        (service([WORKER | DIED]), "its process died 5 times, last 31 s ago (signal 9, SIGKILL)"),
        (service([], loading=[LOADING]), "no worker yet: one loads org/m from the hub, for 14 s now"),
        (service([], absent_since=NOW - 600), "no worker, for 10 min now"),
        (service(), ""),
        (service([WORKER | DIED | {"died_at": NOW - 3600}]), ""),  # history
    ],
)
async def test_the_state_of_a_service_is_judged(state: Answer, detail: str) -> None:
    assert [finding.detail.partition(";")[0] for finding in await found(service=state)] == ([detail] if detail else [])


@pytest.mark.parametrize(
    ("answers", "name", "detail"),
    [
        ({"ready": problem(503, "not_ready", "Redis refuses.", "redis")}, "redis", "Redis refuses."),
        ({"ready": Answer(200, {"storage": "Another storage."})}, "storage", "Another storage."),
        ({"redis": problem(403, "scope_missing", "It needs operate.")}, "redis", "not checked: It needs operate."),
        ({"redis": NO_KEY, "service": NO_KEY}, "key", "A key."),
        ({"redis": FOREIGN, "service": FOREIGN}, "service", "host_not_allowed: Call it as localhost."),
        ({"live": FOREIGN}, "server", "/health/live: host_not_allowed: Call it as localhost."),
        ({"live": Answer(404, {})}, "server", "/health/live: unexpected_answer: The server answered 404"),
        ({"live": HANG_UP}, "server", "No answer from http://127.0.0.1:"),
        ({"service": Answer(200, {"object": "something"})}, "server", "The answer of /v1/service is not the state"),
    ],
    ids=range(9),
)
async def test_each_wrong_answer_has_one_name(answers: dict[str, Answer], name: str, detail: str) -> None:
    [finding] = await found(**answers)
    assert finding.name == name
    assert finding.detail.startswith(detail)
    assert (finding.advice == "") == ("host_not_allowed" in detail), "such a refusal says what to do"


def test_a_redis_that_does_not_answer_is_waited_for_no_longer_than_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(doctor, "command_for", lambda _: sleeps)
    [finding] = doctor.redis_of_settings(0.01)
    assert "has not answered in 0.01 s" in finding.detail
