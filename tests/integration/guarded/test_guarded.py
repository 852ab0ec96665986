"""A whole service with the least rights in Redis and with TLS on the way: what it needs works, all else is refused."""

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis
from kombu.exceptions import OperationalError

from bench.hostile import Traces, clean_up, send_raw, warm_up
from tasks.errors import RedisUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.read import check_schema
from tests.integration.guarded.certificates import Authority
from tests.key_leaks import fail_on_leaks
from tests.link import Link
from tests.processes import PATIENCE_S, ApiProcess, Process, RedisServer, Roles, WorkerProcess, wait_until
from tests.source_tree import CHECKOUT
from worker_config.celery_app import make_celery
from worker_config.settings import DEFAULT_MODEL, load_settings

KEY, OTHER_KEY = "key-of-somebody", "key-of-somebody-else"
NOT_NEEDED = {"client|setinfo", "client", "config|get", "config"}
"""What clients ask for in passing: redis-py names itself, and the API looks whether Redis keeps what it confirms."""
NOT_EVERYTHING = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""In front of a command: root can do no more than its files allow, as another user."""
_BACK = "Redis is back"


class GuardedRedis(RedisServer):
    """A Redis with the users of deploy/redis. Its own clients are the operator's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        made = folder / "users"
        subprocess.run([sys.executable, CHECKOUT / "deploy/redis/make_users.py", made], check=True)
        self.passwords = dict(line.split() for line in (made / "passwords").read_text().splitlines())
        self.command += ["--aclfile", str(made / "users.acl")]

    @property
    def url(self) -> str:
        """With the rights of the operator, without TLS."""
        return f"redis://operator:{self.passwords['operator']}@127.0.0.1:{self.endpoint.port}/0"


@dataclass(slots=True)
class Guarded:
    """The processes of the service, and a client whose key may do everything. `OTHER_KEY` has no scope `admin`."""

    server: GuardedRedis
    link: Link
    authority: Authority
    storage: Path
    api: ApiProcess
    worker: WorkerProcess
    documents: WorkerProcess
    client: httpx.Client

    @property
    def processes(self) -> tuple[Process, ...]:
        return self.api, self.worker, self.documents

    def url(self, user: str, *, trusted: Path | None = None) -> str:
        """For `EMBEDQ_REDIS_URL` of a role. `trusted`: another authority than the right one."""
        return url_of(self.server, self.link, user, trusted or self.authority.file)

    def user(self, name: str) -> redis.Redis:
        """A connection with the rights of a role, to be closed by the caller."""
        return redis.Redis.from_url(self.url(name))


def url_of(server: GuardedRedis, link: Link, user: str, trusted: Path) -> str:
    return f"rediss://{user}:{server.passwords[user]}@127.0.0.1:{link.port}/0?ssl_ca_certs={trusted}"


@pytest.fixture(scope="session")
def guarded(start_redis: Callable[..., RedisServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    server = start_redis(folder / "redis", GuardedRedis)
    assert isinstance(server, GuardedRedis)
    authority = Authority(folder, "authority")
    digests = [sha256(key.encode()).hexdigest() for key in (KEY, OTHER_KEY)]
    storage, keys = folder / "storage", f"somebody:{digests[0]}:admin,other:{digests[1]}"
    try:
        with (
            Link(server.endpoint.port, tls=authority.server()) as link,
            Roles(folder, "", storage_url=storage) as roles,
        ):
            at = {user: url_of(server, link, user, authority.file) for user in ("worker", "documents", "api")}
            worker = roles.worker(redis_url=at["worker"])
            documents = roles.documents(redis_url=at["documents"])
            api = roles.api(redis_url=at["api"], api_keys=keys)
            api.wait_ready()
            with api.client() as client:
                client.headers["authorization"] = f"Bearer {KEY}"
                yield Guarded(server, link, authority, storage, api, worker, documents, client)
        fail_on_leaks(server)
    finally:
        server.stop()


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    return Authority(tmp_path, f"foreign-{secrets.token_hex(4)}")


def is_fine(guarded: Guarded, path: str, **more: Any) -> bool:
    return guarded.client.get(path, **more).is_success


def test_every_kind_of_work_is_done_with_the_rights_of_its_roles(guarded: Guarded) -> None:
    client = guarded.client

    def post(path: str, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = client.post(path, **more).raise_for_status().json()
        return made

    with guarded.server.client() as connection:
        connection.acl_log_reset()
    line = {"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"input": "a", "model": DEFAULT_MODEL}}
    upload = {"data": {"purpose": "batch"}, "files": {"file": ("lines.jsonl", json.dumps(line).encode())}}
    sink = {"type": "dataset", "dataset": "kept"}
    post("/v1/embeddings", json={"input": "a query"})
    task = post("/v1/tasks", json={"input": ["one", "two"]}, headers={"idempotency-key": "1"})["id"]
    file = post("/v1/files", **upload)["id"]
    batch = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    ingestion = {"source": {"documents": [{"id": "1", "text": "a document"}]}, "sink": sink}
    paths = [
        f"/v1/tasks/{task}",
        f"/v1/batches/{post('/v1/batches', json=batch)['id']}",
        f"/v1/ingestions/{post('/v1/ingestions', json=ingestion)['id']}",
    ]
    limits = {"requests_per_second": 50, "tokens_per_minute": 1000, "open_jobs": 5}
    of_another = {"x-api-key": post("/v1/keys", json={"name": "another", "limits": limits})["key"], "authorization": ""}
    wait_until(partial(is_fine, guarded, "/v1/key", headers=of_another), message="the key is known")
    post("/v1/embeddings", json={"input": "of another"}, headers=of_another)
    post("/v1/files", **upload, headers=of_another)
    for action in ("revoke", "purge"):
        post(f"/v1/keys/another/{action}")
    for path in paths:
        wait_until(lambda path=path: client.get(path).json()["status"] == "completed", message=path)  # type: ignore[misc]
    for path in ("/v1/tasks", "/v1/jobs", "/v1/files", "/v1/batches", "/v1/ingestions", "/v1/datasets", "/v1/keys"):
        # A busy machine may be asked again; a right that is missing stays missing.
        wait_until(partial(is_fine, guarded, path), message=path)
    wait_until(lambda: client.get("/v1/keys/another").json().get("swept_at"), message="the sweep of the owner")
    assert set(client.get("/v1/keys/another").json()["left"].values()) == {0}
    for path in [*paths, f"/v1/files/{file}", "/v1/datasets/kept"]:
        assert client.delete(path).status_code == 200, path
    wait_until(partial(is_fine, guarded, "/v1/service/redis"))
    checks = {check["name"]: check for check in client.get("/v1/service/redis").json()["checks"]}
    assert [name for name, check in checks.items() if check["value"] is None] == ["appendfsync"]
    assert checks["appendfsync"]["advice"] == "see for yourself that it is always"
    assert all(check["fine"] for check in checks.values()), checks
    with guarded.server.client() as connection:
        assert [entry for entry in connection.acl_log() if str(entry["object"]).lower() not in NOT_NEEDED] == []
        clients = connection.client_list()
    users = {client["user"] for client in clients}
    assert users >= {"api", "worker", "documents"}
    assert "default" not in users
    assert {client["user"] for client in clients if client["cmd"] == "brpop"} == {"worker", "documents"}


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
    wait_until(partial(is_fine, guarded, "/health/ready"))
    wait_until(lambda: client.post("/v1/embeddings", json={"input": "with it"}).status_code == 200)
    assert [guarded.worker.child_pid, guarded.documents.child_pid] == children


NOBODY = (
    "FLUSHALL|KEYS *|CONFIG GET requirepass|ACL LIST|SAVE|SHUTDOWN NOSAVE|REPLICAOF NO ONE|MONITOR|SCRIPT FLUSH|"
    "GET foreign|CLIENT KILL TYPE normal|MODULE LIST|PUBLISH foreign x"
)
NO_WORKER = "HGETALL eq:key:me|EVAL return(redis.call('HSET','eq:key:me','s','{}')) 0|ZREVRANGE eq:index:key:@all 0 -1"
NO_MODEL_WORKER = (
    "EVAL return(redis.call('HGETALL','eq:file:file_1')) 0|HGETALL eq:ingestion:ingest_1|HGETALL eq:mark:owner_1"
)


@pytest.mark.parametrize(
    ("user", "commands"),
    [("api", NOBODY), ("documents", f"{NOBODY}|{NO_WORKER}"), ("worker", f"{NOBODY}|{NO_WORKER}|{NO_MODEL_WORKER}")],
    ids=["api", "documents", "worker"],
)
def test_what_a_role_does_not_need_is_refused(guarded: Guarded, user: str, commands: str) -> None:
    with guarded.user(user) as connection:
        for command in commands.split("|"):
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|NOPERM|can't"):
                connection.execute_command(*command.split())
    with redis.Redis(port=guarded.server.endpoint.port) as connection, pytest.raises(redis.AuthenticationError):
        connection.ping()


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


def test_hostile_requests_are_refused_and_leave_nothing(guarded: Guarded) -> None:
    """Requests that are no HTTP, or hardly: none is a defect, nothing of them is left."""
    with guarded.server.client() as connection, guarded.api.client() as client:
        client.headers["authorization"] = f"Bearer {OTHER_KEY}"
        warm_up(client)  # keys of bounded size stay for ever after the first ingestion and the first query
        before = Traces.of(connection, guarded.storage)
        defects = asyncio.run(send_raw(guarded.api))
        # A busy machine may say so: that is an answer.
        assert [answer for answer in defects.values() if b":overloaded" not in answer] == []
        assert client.post("/v1/embeddings", json={"input": "a good query"}).status_code == 200
        clean_up(client)
        assert before.left(connection, guarded.storage, timeout_s=PATIENCE_S) == []


def is_told(pid: int) -> bool:
    """Whether another process of this user reads a setting in the environment of that one."""
    command = [*NOT_EVERYTHING, "cat", f"/proc/{pid}/environ"]
    return b"EMBEDQ_" in subprocess.run(command, capture_output=True, check=False).stdout


def test_no_other_process_reads_the_environment_of_a_role(tmp_path: Path) -> None:
    """What parses strangers' documents has the same user."""
    plain = subprocess.Popen([*NOT_EVERYTHING, "sleep", "600"], env={"PATH": os.defpath, "EMBEDQ_X": "1"})
    try:
        wait_until(lambda: is_told(plain.pid), message="what anybody may read who is the same user")
    finally:
        plain.kill()
        plain.wait()
    command = [*NOT_EVERYTHING, sys.executable, "-m", "stack", "--data", str(tmp_path / "data"), "--port", "0"]
    stack = Process("stack", command, tmp_path, compute="fake", api_processes=2)
    stack.launch()
    try:
        stack.wait_while_running(lambda: "ready http" in stack.log(), "it was ready")
        found = [psutil.Process(stack.pid), *psutil.Process(stack.pid).children(recursive=True)]
        assert len(found) > 7, "Redis, two of the API, two workers with a child each, and who starts them"
        # One that was just started hides it when it reads it.
        wait_until(lambda: not [each for each in found if is_told(each.pid)], message="all hide their environment")
    finally:
        stack.stop()
