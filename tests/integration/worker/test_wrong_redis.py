"""Roles and a Redis on which they cannot run: exit 78 or 503 with one sentence, and work as soon as it is mended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasks.ledger.redis_keys import SCHEMA_VERSION
from tests.processes import ApiProcess, Process, RedisServer, Roles, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE

SECRET = "s3cret"


@pytest.fixture
def secret_roles(private_redis: RedisServer, tmp_path: Path) -> Iterator[Roles]:
    """Roles that log in as a user who may do nothing yet."""
    with private_redis.client() as client:
        client.execute_command("ACL SETUSER", "app", "on", f">{SECRET}")
    with Roles(tmp_path, private_redis.url.replace("//", f"//app:{SECRET}@")) as roles:
        yield roles
        assert [process.name for process in roles.processes if SECRET in process.log()] == []


def grant(server: RedisServer, *rights: str) -> None:
    with server.client() as client:
        client.execute_command("ACL SETUSER", "app", "~*", *rights)


def launched(roles: Roles) -> list[Process]:
    processes = [
        roles.api(start=False),
        roles.worker(start=False),
        roles.worker(start=False, module="tasks.ingestion"),
    ]
    for process in processes:
        process.launch()
    return processes


@pytest.mark.parametrize(
    ("options", "database", "sentence"),
    [
        (("--rename-command", "EVALSHA", ""), 0, "does not know the command EVALSHA"),
        ((), 99, "has no database of this number"),
    ],
)
def test_a_redis_that_no_wait_mends_is_said_and_exits_78(
    tmp_path: Path, options: tuple[str, ...], database: int, sentence: str
) -> None:
    server = RedisServer(tmp_path / "redis", options=options).start()
    try:
        with Roles(tmp_path, server.url.removesuffix("0") + str(database)) as roles:
            for process in launched(roles):
                assert process.wait() == CONFIGURATION_EXIT_CODE, process.log()
                assert sentence in process.log()
                assert "Traceback" not in process.log()
                assert "a new one takes over" not in process.log()
    finally:
        server.stop()


def test_a_right_that_is_missing_is_said_by_all_and_granted_without_a_restart(
    private_redis: RedisServer, secret_roles: Roles
) -> None:
    """As Redis 7 makes a user: all keys and commands, and no channels. Then a right to claim is taken away."""
    grant(private_redis, "+@all", "resetchannels")
    api, *workers = launched(secret_roles)
    assert isinstance(api, ApiProcess)
    wait_until(lambda: all("&eq:*" in process.log() for process in (api, *workers)), message="all say what is missing")
    with api.client() as http:
        wait_until(api._answers, message="an API that serves")
        ready, refused = http.get("/health/ready"), http.post("/v1/embeddings", json={"input": "a"})
        assert (ready.status_code, ready.json()["error"]["param"]) == (503, "redis"), ready.text
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "redis_unavailable"), refused.text
        assert "&eq:*" in ready.json()["detail"]
        assert "&eq:*" in refused.json()["detail"]
        grant(private_redis, "&*")
        api.wait_ready()
        assert http.post("/v1/embeddings", json={"input": "a"}).status_code == 200

        grant(private_redis, "-zpopmin")
        location = http.post("/v1/tasks", json={"input": "a"}).headers["location"]
        told = wait_until(lambda: lacks_worker(http), message="it beats, and may claim nothing")
        waiting = http.get(location).json()["waiting"]
        grant(private_redis, "+zpopmin")
        wait_until(lambda: http.get(location).json()["status"] == "completed", message="the work goes on")
        api.wait_ready()
    assert "NOPERM" in told["detail"]
    assert (waiting["code"], "NOPERM" in waiting["message"]) == ("no_worker", True)


def lacks_worker(http: httpx.Client) -> dict[str, Any] | None:
    told: dict[str, Any] = http.get("/health/ready").json()
    return told if told.get("error", {}).get("param") == "worker" else None


def test_a_redis_that_is_emptied_is_claimed_again_and_said(private_redis: RedisServer, private_roles: Roles) -> None:
    worker, api = private_roles.worker(lease_s=1), private_roles.api()
    api.wait_ready()
    with private_redis.client() as connection:
        connection.flushall()
        wait_until(lambda: connection.get("eq:schema") == b"%d" % SCHEMA_VERSION, message="a claimed Redis")
        said = wait_until(
            lambda: [line for role in (worker, api) for line in role.log().splitlines() if "lost its data" in line],
            message="the loss is said",
        )
    assert len(said) == 1
    with api.client() as client:
        wait_until(lambda: client.post("/v1/embeddings", json={"input": "a"}).status_code == 200)


def test_a_redis_that_another_version_has_taken_meanwhile_exits_78(
    private_redis: RedisServer, private_roles: Roles
) -> None:
    roles = [private_roles.worker(lease_s=1), private_roles.documents(lease_s=1), private_roles.api()]
    with private_redis.client() as connection:
        connection.set("eq:schema", 999)
        for role in roles:
            assert role.wait() == CONFIGURATION_EXIT_CODE, role.log()
            assert "schema 999" in role.log()
        connection.delete("eq:schema")
