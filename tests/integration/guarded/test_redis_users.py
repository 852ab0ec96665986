"""A whole service with the least rights in Redis and with TLS on the way: what it needs works, all else is refused."""

import contextlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import httpx
import pytest
import redis
from kombu.exceptions import OperationalError

from tasks.errors import RedisUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.read import check_schema
from tests.integration.guarded.certificates import Authority
from tests.integration.guarded.conftest import Guarded
from tests.processes import wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import DEFAULT_MODEL, load_settings
from worker_config.wake_up import send_bell

NOT_NEEDED = {"client|setinfo", "client", "config|get", "config"}
"""What clients ask for in passing: redis-py names itself, and the API looks whether Redis keeps what it confirms."""

ENDED = {"completed", "failed", "cancelled"}
_BACK = "Redis is back"


def ended(guarded: Guarded, path: str) -> str:
    status: str = wait_until(lambda: ENDED & {guarded.client.get(path).json()["status"]}).pop()
    return status


def denied(connection: redis.Redis) -> list[Mapping[str, Any]]:
    """What Redis has refused its users, beside what they do not need."""
    return [entry for entry in connection.acl_log() if str(entry["object"]).lower() not in NOT_NEEDED]


def answers(client: httpx.Client, path: str) -> bool:
    return client.get(path).status_code == httpx.codes.OK


def test_every_kind_of_work_is_done_with_the_rights_of_its_roles(guarded: Guarded) -> None:
    client = guarded.client
    with guarded.server.client() as connection:
        connection.acl_log_reset()
    line = {"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"input": "a", "model": DEFAULT_MODEL}}
    upload = {"file": ("lines.jsonl", json.dumps(line).encode())}

    query = client.post("/v1/embeddings", json={"input": "a query"})
    task = client.post("/v1/tasks", json={"input": ["one", "two"]}, headers={"idempotency-key": "1"}).json()["id"]
    file = client.post("/v1/files", data={"purpose": "batch"}, files=upload).json()["id"]
    batch = client.post(
        "/v1/batches", json={"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    ).json()["id"]
    documents = {
        "source": {"documents": [{"id": "1", "text": "a document"}]},
        "sink": {"type": "dataset", "dataset": "kept"},
    }
    ingestion = client.post("/v1/ingestions", json=documents).json()["id"]
    limits = {"requests_per_second": 50, "tokens_per_minute": 1000, "open_jobs": 5}
    made = client.post("/v1/keys", json={"name": "another", "limits": limits})

    assert query.status_code == 200, query.text
    assert made.status_code == 201, made.text
    of_another = {"authorization": f"Bearer {made.json()['key']}"}
    wait_until(lambda: client.get("/v1/key", headers=of_another).status_code == 200)
    limited = client.post("/v1/embeddings", json={"input": "of another"}, headers=of_another)
    assert limited.status_code == 200, limited.text
    for action in ("revoke", "purge"):
        assert client.post(f"/v1/keys/another/{action}").status_code == 200, action
    paths = [f"/v1/tasks/{task}", f"/v1/batches/{batch}", f"/v1/ingestions/{ingestion}"]
    assert [ended(guarded, path) for path in paths] == ["completed"] * 3
    for path in ("/v1/tasks", "/v1/jobs", "/v1/files", "/v1/batches", "/v1/ingestions", "/v1/datasets", "/v1/keys"):
        # A busy machine may be asked again; a right that is missing stays missing.
        wait_until(partial(answers, client, path), message=path)
    for path in [*paths, f"/v1/files/{file}", "/v1/datasets/kept"]:
        assert client.delete(path).status_code == 200, path
    with guarded.server.client() as connection:
        assert denied(connection) == []


def test_a_purged_owner_is_swept_with_the_rights_of_a_documents_worker(guarded: Guarded) -> None:
    client = guarded.client
    made = client.post("/v1/keys", json={"name": "leaves"}).raise_for_status().json()
    key = {"authorization": f"Bearer {made['key']}"}
    wait_until(lambda: client.get("/v1/key", headers=key).status_code == 200)
    form, file = {"purpose": "user_data"}, {"file": ("a.txt", b"text")}
    client.post("/v1/files", data=form, files=file, headers=key).raise_for_status()
    for action in ("revoke", "purge"):
        client.post(f"/v1/keys/leaves/{action}").raise_for_status()
    wait_until(lambda: client.get("/v1/keys/leaves").json().get("swept_at"), message="the sweep of the owner")
    left = client.get("/v1/keys/leaves").json()["left"]
    assert set(left.values()) == {0}, left


def told_of_redis(guarded: Guarded) -> Any:
    """A busy machine may answer 503."""

    def told() -> Any:
        answer = guarded.client.get("/v1/service/redis")
        return answer.json() if answer.status_code == 200 else None

    return wait_until(told)


def test_what_roles_may_not_ask_is_said_and_nothing_else_is_missing(guarded: Guarded) -> None:
    with guarded.server.client() as connection:
        connection.acl_log_reset()
        checks = {check["name"]: check for check in told_of_redis(guarded)["checks"]}
        assert denied(connection) == []
        connection.execute_command("ACL", "SETUSER", "api", "-info")
        untold = told_of_redis(guarded)
        connection.execute_command("ACL", "SETUSER", "api", "+info")
    wait_until(lambda: guarded.client.get("/health/ready").status_code == 200)

    assert [check["name"] for check in untold["checks"] if check["value"]] == ["clock"], untold
    assert [name for name, check in checks.items() if check["value"] is None] == ["appendfsync"]
    assert checks["appendfsync"]["advice"] == "see for yourself that it is always"
    assert all(check["fine"] for check in checks.values()), checks


def test_a_right_that_scripts_lack_is_an_outage_until_it_is_granted(guarded: Guarded) -> None:
    """As after an upgrade: what a new script calls is missing in users that were written before."""
    client, children = guarded.client, [guarded.worker.child_pid, guarded.documents.child_pid]
    roles = ("api", "worker", "documents")
    back = guarded.worker.log().count(_BACK)
    with guarded.server.client() as connection:
        for role in roles:
            connection.execute_command("ACL", "SETUSER", role, "-time")
        refused = client.post("/v1/embeddings", json={"input": "without a right"})
        probe = client.get("/health/ready")
        wait_until(lambda: all("(NOPERM)" in process.log() for process in guarded.processes), message="all say why")
        for role in roles:
            connection.execute_command("ACL", "SETUSER", role, "+time")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "redis_unavailable"), refused.text
    assert "NOPERM" in refused.json()["detail"]
    assert "NOPERM" in probe.json()["detail"]  # `embedq doctor` prints it
    # Until then its next heartbeat still says that it is refused, and the service would be ready for a moment only.
    wait_until(lambda: guarded.worker.log().count(_BACK) > back, message=_BACK)
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    wait_until(lambda: client.post("/v1/embeddings", json={"input": "with it"}).status_code == 200)
    assert [guarded.worker.child_pid, guarded.documents.child_pid] == children


def test_every_role_is_connected_as_its_own_user(guarded: Guarded) -> None:
    with guarded.server.client() as connection:
        clients = connection.client_list()
        bells = {client["user"] for client in clients if client["cmd"] == "brpop"}

        assert {client["user"] for client in clients} >= {"api", "worker", "documents"}
        assert "default" not in {client["user"] for client in clients}
        assert bells == {"worker", "documents"}


@pytest.mark.parametrize(
    ("user", "command"),
    [
        *((user, command) for user in ("api", "worker", "documents") for command in (
            ("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "requirepass"), ("ACL", "LIST"), ("SAVE",),
            ("SHUTDOWN", "NOSAVE"), ("REPLICAOF", "NO", "ONE"), ("MONITOR",), ("SCRIPT", "FLUSH"), ("GET", "foreign"),
            ("CLIENT", "KILL", "TYPE", "normal"), ("MODULE", "LIST"), ("PUBLISH", "foreign", "x"),
        )),
        *((user, command) for user in ("worker", "documents") for command in (
            ("HGETALL", "eq:key:me"), ("EVAL", "return redis.call('HSET', 'eq:key:me', 's', '{}')", "0"),
            ("ZREVRANGE", "eq:index:key:@all", "0", "-1"),
        )),
        ("worker", ("EVAL", "return redis.call('HGETALL', 'eq:file:file_1')", "0")),
        ("worker", ("HGETALL", "eq:ingestion:ingest_1")),
        ("worker", ("HGETALL", "eq:mark:owner_1")),
    ],
)  # fmt: skip
def test_what_a_role_does_not_need_is_refused(guarded: Guarded, user: str, command: tuple[str, ...]) -> None:
    with guarded.user(user) as connection, pytest.raises(redis.ResponseError, match=r"(?i)permission|NOPERM|can't"):
        connection.execute_command(*command)


def test_nobody_is_let_in_without_a_name(guarded: Guarded) -> None:
    with redis.Redis(port=guarded.server.endpoint.port) as connection, pytest.raises(redis.AuthenticationError):
        connection.ping()


def test_one_bell_of_a_queue_waits(guarded: Guarded) -> None:
    settings = load_settings(redis_url=guarded.url("api"))
    with make_celery(settings) as app, guarded.server.client() as connection:
        connection.acl_log_reset()
        send_bell(app, "nobody/listens")
        send_bell(app, "nobody/listens")

        assert connection.llen(bell_queue("nobody/listens")) == 1
        assert denied(connection) == []


@pytest.mark.parametrize("named", [True, False], ids=["an authority", "those of the system"])
def test_a_server_with_a_foreign_certificate_is_not_spoken_to(
    guarded: Guarded, foreign: Authority, named: bool
) -> None:
    url = guarded.url("worker", trusted=foreign.file)
    settings = load_settings(redis_url=url if named else url.partition("?")[0])

    with contextlib.closing(Ledger.connect(settings.redis_url)) as ledger, pytest.raises(RedisUnavailable):
        ledger.run(check_schema())
    # Not `send_bell`: its pool of connections is the one of other tests of this process.
    with make_celery(settings) as app, pytest.raises(OperationalError, match="certificate"):
        app.connection_for_write().ensure_connection(max_retries=1, interval_start=0)
