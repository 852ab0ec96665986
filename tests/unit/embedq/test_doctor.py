"""`embedq doctor`: what it says of each answer of a server."""

import sys
from datetime import timedelta
from typing import Any

import httpx
import pytest

from embedq.cli import doctor
from embedq.cli.doctor import Finding, examine

NOW = 1_000_000.0
FULL = {"memory_percent": 77, "limit_bytes": 100, "tasks_percent": 63, "queries_percent": 70}
WORKER: dict[str, Any] = {"deaths": 0, "died_at": None, "died_of": None}
DIED = {"deaths": 5, "died_at": NOW - 31, "died_of": "signal 9, SIGKILL"}
LOADING = {"model": "org/m", "source": "the hub", "since": NOW - 14}
CHECKS = {"object": "redis", "checks": [{"name": "mode", "fine": True, "detail": "standalone", "advice": ""}]}


def service(workers: Any = (WORKER,), *, loading: Any = (), redis: Any = FULL, **more: Any) -> dict[str, Any]:
    """The state of a service with one model, as its API tells it."""
    model = {"id": "m", "dimension": 3, "device": "cpu", "workers": [*workers], "loading": [*loading], **more}
    documents = {"workers": [WORKER], "absent_since": None}
    return {"object": "service", "time": NOW, "redis": redis, "models": [model], "documents": documents}


def refusal(status: int, code: str, message: str, param: str = "") -> tuple[int, Any]:
    return status, {"detail": message, "error": {"message": message, "code": code, "param": param}}


FOREIGN = refusal(403, "host_not_allowed", "Call it as localhost.")
WELL: dict[str, tuple[int, Any]] = {
    "/health/live": (200, {"status": "live"}),
    "/health/ready": (200, {"status": "ready", "storage": None}),
    "/v1/service/redis": (200, CHECKS),
    "/v1/service": (200, service(redis=FULL | {"memory_percent": 3})),
}


async def found(**answers: tuple[int, Any]) -> dict[str, Finding]:
    """What is found wrong, or cannot be checked, where the answers of some paths are these."""
    paths = {"ready": "/health/ready", "live": "/health/live", "redis": "/v1/service/redis", "service": "/v1/service"}
    given = WELL | {paths[name]: answer for name, answer in answers.items()}

    async def get(path: str) -> httpx.Response:
        status, body = given[path]
        response = httpx.Response(status, json=body, request=httpx.Request("GET", f"http://h{path}"))
        response.elapsed = timedelta(seconds=0.01)
        return response

    return {
        finding.name: finding for finding in [one async for one in examine(get)] if not finding.fine or finding.advice
    }


async def test_nothing_is_wrong_with_a_server_that_is_well() -> None:
    assert await found() == {}


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        (service(), "77 % used: queries and tasks are refused now"),
        (service(redis=FULL | {"memory_percent": 65}), "65 % used: tasks are refused now"),
        (service([WORKER | DIED]), "its process died 5 times, last 31 s ago (signal 9, SIGKILL)"),
        (service([], loading=[LOADING]), "no worker yet: one loads org/m from the hub, for 14 s now"),
        (service([], absent_since=NOW - 600), "no worker, for 10 min now"),
    ],
)
async def test_the_state_of_a_service_is_judged(state: dict[str, Any], detail: str) -> None:
    assert detail in " ".join(finding.detail for finding in (await found(service=(200, state))).values())


async def test_deaths_of_an_hour_ago_are_history() -> None:
    died = WORKER | DIED | {"died_at": NOW - 3600}
    calm = FULL | {"memory_percent": 3}
    assert await found(service=(200, service([died], redis=calm))) == {}


@pytest.mark.parametrize(
    ("answers", "names"),
    [
        ({"ready": refusal(503, "not_ready", "Redis refuses connections.", "redis")}, ["redis"]),
        ({"ready": (200, {"status": "ready", "storage": "A role has another storage."})}, ["storage"]),
        ({"redis": refusal(403, "scope_missing", "This call needs the scope operate.")}, ["redis"]),
        ({"redis": refusal(401, "no_key", "A key."), "service": refusal(401, "no_key", "A key.")}, ["key"]),
        ({"redis": FOREIGN, "service": FOREIGN}, ["service"]),
        ({"live": (404, {})}, ["server"]),
        ({"live": FOREIGN}, ["server"]),
        ({"service": (200, {"object": "something"})}, ["server"]),
    ],
)
async def test_each_wrong_answer_has_one_name(answers: dict[str, tuple[int, Any]], names: list[str]) -> None:
    assert [*await found(**answers)] == names


@pytest.mark.parametrize("asked", ["live", "service"])
async def test_what_the_server_says_of_a_refusal_is_told(asked: str) -> None:
    [finding] = (await found(**{asked: FOREIGN})).values()
    assert finding.detail.endswith("host_not_allowed: Call it as localhost.")
    assert finding.advice == ""


def test_a_redis_that_does_not_answer_is_waited_for_no_longer_than_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(doctor, "command_for", lambda _: sleeps)
    [finding] = doctor.redis_of_settings(0.01)
    assert "has not answered in 0.01 s" in finding.detail
