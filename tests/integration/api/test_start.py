"""Starting `python -m api`: what stops it, with which code and message, and what it does not load."""

import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import redis

from tests.processes import RedisServer, Roles

CONFIGURATION_ERROR = 78


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "203.0.113.1", "allow_unauthenticated": True}, "EMBEDQ_HOST=203.0.113.1"),
        ({"host": "no.such.host.invalid", "allow_unauthenticated": True}, "EMBEDQ_HOST=no.such.host.invalid"),
        ({"max_inputs": 0}, "EMBEDQ_MAX_INPUTS=0"),
        ({"compute": "magic"}, "EMBEDQ_COMPUTE=magic"),
    ],
    ids=["foreign address", "unknown host", "bad number", "bad word"],
)
def test_a_configuration_that_cannot_work_is_said_and_exits_78(
    roles: Roles, settings: dict[str, object], message: str
) -> None:
    api = roles.api(start=False, **settings)
    api.launch()

    assert api.wait() == CONFIGURATION_ERROR
    assert message in api.log()
    assert len(api.log().splitlines()) == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_a_port_in_use_may_become_free_and_is_no_configuration_error(roles: Roles, processes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        api = roles.api(start=False, port=port, api_processes=processes)
        api.launch()

        assert api.wait() not in {0, CONFIGURATION_ERROR}
        (line,) = [line for line in api.log().splitlines() if not line.startswith("INFO ")]
        assert str(port) in line
        assert "address already in use" in line.lower()


def test_a_file_of_settings_in_another_encoding_is_said_and_exits_78(roles: Roles) -> None:
    api = roles.api(start=False)
    (api.folder / ".env").write_bytes("EMBEDQ_MODEL=modèle\n".encode("latin-1"))
    api.launch()

    assert api.wait() == CONFIGURATION_ERROR
    assert api.log().strip() == ".env: byte 17 is not UTF-8. Save the file as UTF-8."


def test_white_space_around_a_setting_is_none_of_it(redis_url: str, tmp_path: Path) -> None:
    with Roles(tmp_path, f" {redis_url}\n") as roles:
        roles.worker(compute="fake ")
        roles.api(host=" 127.0.0.1", allow_unauthenticated="true\n").wait_ready()


def test_variables_of_the_celery_of_another_application_change_nothing(
    roles: Roles, private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BROKER_URL", "BROKER_READ_URL", "BROKER_WRITE_URL", "RESULT_BACKEND"):
        monkeypatch.setenv(f"CELERY_{name}", private_redis.url)
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "config_of_another_application")
    with private_redis.client() as theirs:
        before = theirs.info("stats")["total_connections_received"]
        worker, api = roles.worker(), roles.api()
        with api.client() as client:
            api.wait_ready()
            worker.kill_child()  # what is submitted now needs a bell: nobody waits at the ledger
            task = client.post("/v1/tasks", json={"input": "a"}).json()
            ended = client.get(task["links"]["self"], params={"wait": 60}).json()
        assert ended["status"] == "completed"
        assert theirs.info("stats")["total_connections_received"] == before


def test_data_of_another_version_exits_78(roles: Roles, redis_client: redis.Redis) -> None:
    redis_client.set("eq:schema", 999)
    api = roles.api(start=False)
    api.launch()

    assert api.wait() == CONFIGURATION_ERROR
    assert "schema 999" in api.log()


@pytest.mark.parametrize("processes", [1, 2])
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


def test_it_serves_and_sigterm_ends_it_cleanly(roles: Roles) -> None:
    api = roles.api()

    assert httpx.get(f"{api.base_url}/health/live").status_code == 200
    assert api.stop() == 0
    assert "Traceback" not in api.log()


def test_importing_the_web_tier_leaves_torch_unloaded() -> None:
    heavy = ("torch", "sentence_transformers", "transformers", "openvino", "tasks.encoder")
    code = f"import sys, api.app, api.__main__; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"
