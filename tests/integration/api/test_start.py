"""Starting `python -m api`, also as several processes behind one port: what stops it, with which code and message."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from tests.processes import PATIENCE_S, ApiProcess, RedisServer, Roles, wait_until
from tests.thorough import some

CONFIGURATION_ERROR = 78
PROCESSES = 2
WRONG: list[tuple[dict[str, object], str]] = [
    ({"host": "203.0.113.1", "allow_unauthenticated": True}, "EMBEDQ_HOST=203.0.113.1"),
    ({"host": "no.such.host.invalid", "allow_unauthenticated": True}, "EMBEDQ_HOST=no.such.host.invalid"),
    ({"max_inputs": 0}, "EMBEDQ_MAX_INPUTS=0"),
    ({"compute": "magic"}, "EMBEDQ_COMPUTE=magic"),
]


def ended(roles: Roles, **settings: object) -> tuple[int, str]:
    """Exit code and log of an API that cannot run."""
    api = roles.api(start=False, **settings)
    api.launch()
    return api.wait(), api.log()


def test_a_configuration_that_cannot_work_is_said_and_exits_78(roles: Roles, redis_client: redis.Redis) -> None:
    launched = [(roles.api(start=False, **settings), message) for settings, message in WRONG]
    for api, _ in launched:
        api.launch()
    for api, message in launched:
        assert api.wait() == CONFIGURATION_ERROR
        assert message in api.log()
        assert len(api.log().splitlines()) == 1
    redis_client.set("eq:schema", 999)
    code, log = ended(roles)
    assert (code, "schema 999" in log) == (CONFIGURATION_ERROR, True)
    (roles.folder / ".env").write_bytes("EMBEDQ_MODEL=modèle\n".encode("latin-1"))
    code, log = ended(roles)
    assert (code, log.strip()) == (CONFIGURATION_ERROR, ".env: byte 17 is not UTF-8. Save the file as UTF-8.")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_port_in_use_may_become_free_and_is_no_configuration_error(roles: Roles, processes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, log = ended(roles, port=port, api_processes=processes)
    assert code not in {0, CONFIGURATION_ERROR}
    (line,) = [line for line in log.splitlines() if not line.startswith("INFO ")]
    assert str(port) in line
    assert "address already in use" in line.lower()


def test_white_space_around_a_setting_and_variables_of_another_celery_change_nothing(
    redis_url: str, tmp_path: Path, private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BROKER_URL", "BROKER_READ_URL", "BROKER_WRITE_URL", "RESULT_BACKEND"):
        monkeypatch.setenv(f"CELERY_{name}", private_redis.url)
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "config_of_another_application")
    with private_redis.client() as theirs, Roles(tmp_path, f" {redis_url}\n") as roles:
        before = theirs.info("stats")["total_connections_received"]
        worker, api = roles.worker(compute="fake "), roles.api(host=" 127.0.0.1", allow_unauthenticated="true\n")
        with api.client() as client:
            api.wait_ready()
            worker.kill_child()  # what is submitted now needs a bell: nobody waits at the ledger
            task = client.post("/v1/tasks", json={"input": "a"}).json()
            result = client.get(task["links"]["self"], params={"wait": 60}).json()
        assert result["status"] == "completed"
        assert theirs.info("stats")["total_connections_received"] == before
        assert api.stop() == 0
        assert "Traceback" not in api.log()


@pytest.mark.parametrize("processes", some([1, PROCESSES], 1))
def test_data_of_another_version_that_shows_up_later_exits_78(
    private_redis: RedisServer, private_roles: Roles, processes: int
) -> None:
    with private_redis.client() as connection:
        connection.set("eq:schema", 999)
    private_redis.stop()
    api = private_roles.api(api_processes=processes)  # it starts without Redis, so it cannot know yet
    private_redis.start()

    assert api.wait() == CONFIGURATION_ERROR
    assert "schema 999" in api.log()
    with private_redis.client() as connection:
        connection.delete("eq:schema")


def test_importing_the_web_tier_leaves_torch_unloaded() -> None:
    heavy = ("torch", "sentence_transformers", "transformers", "openvino", "tasks.encoder")
    code = f"import sys, api.app, api.__main__; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"


# ---- several processes -----------------------------------------------------------------------------------------------


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


def _all_gone(processes: list[psutil.Process]) -> Callable[[], bool]:
    return lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def _answer_of(api: ApiProcess, number: str) -> None:
    """Returns when this process has answered."""

    def answered() -> bool:
        # A connection of its own for each request: one connection stays with one process.
        text = httpx.get(f"{api.base_url}/metrics").text
        lines = text.splitlines()  # queues are the same in every process and have no label
        assert not [line for line in lines if line.startswith("embedq_backlog") and "process=" in line]
        return {number} == {*re.findall(r'process="(\d+)"', text)}

    wait_until(answered, message=f"an answer of process {number}")


def test_one_that_is_killed_is_replaced_while_the_others_serve(roles: Roles) -> None:
    api = roles.api(api_processes=PROCESSES)
    roles.worker()
    for number in range(10):
        body = {"input": f"text {number}"}
        assert httpx.post(f"{api.base_url}/v1/embeddings", json=body, timeout=PATIENCE_S).status_code == httpx.codes.OK
    for name in ("1", "2"):
        _answer_of(api, name)
    first, second = _children(api)
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: first not in _children(api), message="another process")
    assert second in _children(api)
    _answer_of(api, "3")
    children = _children(api)
    assert api.stop() == 0
    assert _all_gone(children)()


def test_processes_do_not_outlive_their_parent(roles: Roles) -> None:
    api = roles.api(api_processes=PROCESSES)
    children = _children(api)
    api.kill()
    wait_until(_all_gone(children), message="the processes noticed")
