"""Starting `python -m api`, also as several processes behind one port: what stops it, with which code and message."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
import redis

from tests.processes import PATIENCE_S, ApiProcess, RedisServer, Roles, wait_until

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
    with socket.create_server(("127.0.0.1", 0)) as taken:  # may become free, and is no error of the configuration
        port = taken.getsockname()[1]
        for processes in (1, PROCESSES):
            code, log = ended(roles, port=port, api_processes=processes)
            assert code not in {0, CONFIGURATION_ERROR}
            (line,) = [line for line in log.splitlines() if not line.startswith("INFO ")]
            assert str(port) in line
            assert "address already in use" in line.lower()
    redis_client.set("eq:schema", 999)
    code, log = ended(roles)
    assert (code, "schema 999" in log) == (CONFIGURATION_ERROR, True)
    (roles.folder / ".env").write_bytes("EMBEDQ_MODEL=modèle\n".encode("latin-1"))
    code, log = ended(roles)
    assert (code, log.strip()) == (CONFIGURATION_ERROR, ".env: byte 17 is not UTF-8. Save the file as UTF-8.")


def test_importing_the_web_tier_leaves_torch_unloaded() -> None:
    heavy = ("torch", "sentence_transformers", "transformers", "openvino", "tasks.encoder")
    code = f"import sys, api.app, api.__main__; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


# ---- several processes -----------------------------------------------------------------------------------------------


def lives(process: psutil.Process, command: str = "") -> bool:
    try:
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return alive and command in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return False


def children_of(api: ApiProcess) -> list[psutil.Process]:
    def serving() -> list[psutil.Process] | None:
        children = psutil.Process(api.pid).children()
        found = [child for child in children if lives(child, "spawn_main")]  # not the resource tracker
        return found if len(found) == PROCESSES else None

    return wait_until(serving, message="all processes run")


def test_several_processes_take_settings_with_white_space_and_one_that_is_killed_is_replaced(
    redis_url: str, private_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of the Celery of another application change nothing."""
    for name in ("BROKER_URL", "BROKER_READ_URL", "BROKER_WRITE_URL", "RESULT_BACKEND"):
        monkeypatch.setenv(f"CELERY_{name}", private_redis.url)
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "config_of_another_application")
    with private_redis.client() as theirs, Roles(tmp_path, f" {redis_url}\n") as roles:
        before = theirs.info("stats")["total_connections_received"]
        worker = roles.worker(compute="fake ")
        api = roles.api(host=" 127.0.0.1", allow_unauthenticated="true\n", api_processes=f" {PROCESSES}")
        api.wait_ready()
        for number in range(10):
            body = {"input": f"text {number}"}
            answer = httpx.post(f"{api.base_url}/v1/embeddings", json=body, timeout=PATIENCE_S)
            assert answer.status_code == httpx.codes.OK
        first, second = children_of(api)
        first.send_signal(signal.SIGKILL)
        wait_until(lambda: first not in children_of(api), message="another process")
        assert second in children_of(api)
        text = httpx.get(f"{api.base_url}/metrics").text  # queues are the same in every process and have no label
        assert "process=" in text
        assert not [line for line in text.splitlines() if line.startswith("embedq_backlog") and "process=" in line]
        worker.kill_child()  # what is submitted now needs a bell: nobody waits at the ledger
        with api.client() as client:
            task = client.post("/v1/tasks", json={"input": "a"}).json()
            assert client.get(task["links"]["self"], params={"wait": 60}).json()["status"] == "completed"
        assert theirs.info("stats")["total_connections_received"] == before
        children = children_of(api)
        assert api.stop() == 0
        assert not any(map(lives, children))
        assert "Traceback" not in api.log()

        api.start()
        children = children_of(api)
        api.kill()  # they do not outlive their parent
        wait_until(lambda: not any(map(lives, children)), message="the processes noticed")
