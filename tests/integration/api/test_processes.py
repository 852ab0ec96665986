"""Several web tier processes behind one port, under uvicorn's supervisor."""

import os
import re
import signal
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.processes import PATIENCE_S, ApiProcess, Roles, wait_until
from tests.thorough import some

PROCESSES = 2


@pytest.fixture
def api(roles: Roles) -> Iterator[ApiProcess]:
    api = roles.api(api_processes=PROCESSES)
    yield api
    if api.running:
        api.stop()


def _children(api: ApiProcess) -> list[psutil.Process]:
    def serves(child: psutil.Process) -> bool:
        try:
            return child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in " ".join(child.cmdline())
        except psutil.NoSuchProcess:  # it has ended since it was listed
            return False

    def serving() -> list[psutil.Process] | None:
        found = [child for child in psutil.Process(api.pid).children() if serves(child)]  # not the resource tracker
        return found if len(found) == PROCESSES else None

    return wait_until(serving, message="all processes run")


def _all_gone(processes: list[psutil.Process]) -> bool:
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def _process_that_answers(api: ApiProcess) -> str:
    # A connection of its own for each request: one connection stays with one process.
    answer = httpx.get(f"{api.base_url}/metrics").text
    (name,) = set(re.findall(r'process="(\d+)"', answer))
    return str(name)


@pytest.mark.thorough
def test_every_process_serves(api: ApiProcess) -> None:
    seen: set[str] = set()

    def all_seen() -> bool:
        seen.add(_process_that_answers(api))
        return seen == {"1", "2"}

    wait_until(all_seen, message="an answer of each process")


def test_a_query_is_answered_whichever_process_gets_it(api: ApiProcess, roles: Roles) -> None:
    roles.worker()
    for number in range(10):
        body = {"input": f"text {number}"}
        assert httpx.post(f"{api.base_url}/v1/embeddings", json=body, timeout=PATIENCE_S).status_code == httpx.codes.OK


def test_queues_are_the_same_in_every_process_and_have_no_label(api: ApiProcess) -> None:
    lines = httpx.get(f"{api.base_url}/metrics").text.splitlines()
    assert not [line for line in lines if line.startswith("embedq_backlog") and "process=" in line]
    assert not [line for line in lines if line.startswith("embedq_redis_up ")]


@pytest.mark.parametrize("number", some([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_a_stop_ends_all(api: ApiProcess, number: int) -> None:
    children = _children(api)
    api.send(number)
    assert api.wait() == 0
    assert _all_gone(children)


def test_one_that_is_killed_is_replaced_while_the_others_serve(api: ApiProcess) -> None:
    first, second = _children(api)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: first not in _children(api), message="another process")
    assert second in _children(api)
    seen: set[str] = set()

    def replaced() -> bool:
        seen.add(_process_that_answers(api))
        return "3" in seen

    wait_until(replaced, message="an answer of the new process")
    assert api.stop() == 0


def test_processes_do_not_outlive_their_parent(api: ApiProcess) -> None:
    children = _children(api)
    api.kill()
    wait_until(lambda: _all_gone(children), message="the processes noticed")
