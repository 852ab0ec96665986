"""Keys of the ledger over HTTP: who may make the first, what each may do, and what changes while the service runs."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from api.auth import Keys
from api.schemas.keys import NewKey
from api.services.keys import KeyService
from tasks.errors import Overloaded
from tasks.ledger.client import AsyncLedger
from tasks.records import store
from tasks.records.api_keys import Key
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, MANAGED_KEYS, ServedApp, bearer, code_of, make_key
from tests.made_keys import found
from tests.processes import RedisServer, wait_until
from worker_config.settings import load_settings


def test_the_first_key_closes_the_service_and_has_all_scopes(client: httpx.Client, redis_url: str) -> None:
    assert client.get("/v1/models").status_code == 200

    ops = found(client, redis_url)

    assert code_of(client.get("/v1/models")) == (401, "invalid_api_key")
    assert code_of(client.post("/v1/keys", json={"name": "second"})) == (401, "invalid_api_key")
    own = client.get("/v1/key", headers=ops).json()
    assert (own["name"], own["scopes"]) == ("ops", ["online", "bulk", "files", "ingest", "read", "operate", "admin"])
    listed = client.get("/v1/keys", headers=ops).json()["data"]
    assert [one["name"] for one in listed] == ["ops"]
    assert "key" not in listed[0]


@pytest.fixture
def guarded(serve: Callable[..., ServedApp]) -> httpx.Client:
    return serve(api_keys=KEYS).client


def test_a_known_key_is_let_in_and_nobody_else(guarded: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    known = [ANN, {"authorization": "bearer key of bob"}, {"api-key": "key of ann"}, {"x-api-key": "key of bob"}]
    for headers in known:
        assert guarded.get("/v1/models", headers=headers).status_code == 200, headers
    for headers in [{}, {"authorization": "Basic a2V5"}, {"x-api-key": ""}, bearer("guess-1"), bearer("guess-2")]:
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/tasks"), ("POST", "/v1/embeddings")):
            answer = guarded.request(method, path, headers=headers)
            assert code_of(answer) == (401, "invalid_api_key"), headers
            assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/health/live", "/health/ready", "/metrics"):
        assert guarded.get(path).status_code in {200, 503}, "probes need no key"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "requests without a known API key: 1 x from 127.0.0.1"


CALLERS: list[dict[str, str]] = [
    {},  # a program on this machine, or a proxy that says nothing of those for whom it calls
    {"host": "127.0.0.1:8000"},  # of nginx since 1.29.7: HTTP/1.1 and the name of its upstream
    {"host": "localhost"},  # HAProxy passes on what the caller has chosen
    {"x-forwarded-for": "10.0.0.1"},
    {"forwarded": "for=10.0.0.1"},
    {"via": "1.1 proxy"},
    {"cf-connecting-ip": "10.0.0.1"},
    {"authorization": "Bearer embedq_guessed"},
]


@pytest.mark.parametrize("closed", [False, True])
def test_nobody_manages_keys_over_http_without_one(serve: Callable[..., ServedApp], *, closed: bool) -> None:
    client = serve(allowed_hosts="*", allow_unauthenticated=not closed).client
    paths = [("POST", "/v1/keys"), ("GET", "/v1/keys"), ("POST", "/v1/keys/anonymous/purge")]
    for headers, (method, path) in product(CALLERS, paths):
        refused = client.request(method, path, json={"name": "mine"}, headers=headers)
        assert code_of(refused) == ((401, "invalid_api_key") if closed else (403, "scope_missing")), headers
        assert closed or "embedq keys create NAME" in refused.json()["detail"]


def test_who_was_let_in_before_the_first_key_makes_no_other(client: httpx.Client, redis_url: str) -> None:
    def body() -> Iterator[bytes]:
        yield b'{"name": "late", '
        found(client, redis_url)
        yield b'"scopes": ["admin"]}'

    late = client.post("/v1/keys", content=body(), headers={"content-type": "application/json"})

    assert code_of(late) == (403, "scope_missing")


def test_a_key_through_redis_has_the_usual_scopes_once_there_is_one_that_manages(
    client: httpx.Client, redis_url: str
) -> None:
    ops = found(client, redis_url)
    second = found(client, redis_url, "second")
    assert "admin" not in client.get("/v1/key", headers=second).json()["scopes"]
    assert client.post("/v1/keys/ops/revoke", headers=ops).status_code == 200
    third = found(client, redis_url, "third")
    assert "admin" in client.get("/v1/key", headers=third).json()["scopes"], "nobody else could manage any more"


def test_no_text_is_valid_that_nobody_was_told(serve: Callable[..., ServedApp], redis_url: str) -> None:
    unsure, sure = serve(redis_ack="replica").client, serve().client  # there is no replica
    ops = found(sure, redis_url)
    wait_until(lambda: unsure.get("/v1/key", headers=ops).json()["name"] == "ops")
    assert code_of(unsure.post("/v1/keys", json={"name": "lost"}, headers=ops)) == (503, "not_replicated")
    assert code_of(sure.get("/v1/keys/lost", headers=ops)) == (404, "key_not_found")
    assert code_of(unsure.post("/v1/keys/ops/rotate", json={}, headers=ops)) == (503, "not_replicated")

    # It may have seen the change before it was undone, and looks again half a second later.
    wait_until(lambda: sure.get("/v1/keys/ops", headers=ops).status_code == 200, message="the key as it was")


async def stored(ledger: AsyncLedger) -> list[Key | None]:
    return [one.record for one in (await ledger.run(store.listed(Key, store.ALL))).records]


async def test_no_text_is_valid_that_a_process_was_too_busy_to_tell(private_redis: RedisServer) -> None:
    def lag_s() -> float:  # asked for when an answer is overdue, before anything is undone
        private_redis.send(signal.SIGCONT)
        return 1.0

    class Seconds(float):
        """A time that is added between the reading of a key and the writing."""

        def __radd__(self, now_s: float) -> float:
            private_redis.send(signal.SIGSTOP)  # what is in the socket by then Redis reads when it goes on
            return now_s + float(self)

    ledger = AsyncLedger.connect(private_redis.url, lag_s=lag_s)
    keys = KeyService(Keys(load_settings(), ledger), ledger)
    try:
        await keys.create(NewKey(name="ops"))  # Redis has the script from now on, and would not refuse it below
        before = await stored(ledger)
        with pytest.raises(Overloaded):
            await keys.create(NewKey.model_construct(name="lost", expires_in=Seconds(60)))
        assert await stored(ledger) == before

        [ops] = before
        assert ops is not None
        with pytest.raises(Overloaded):  # another key of an owner who has one: that one is not what is undone
            await keys.create(NewKey.model_construct(name="lost", expires_in=Seconds(60)), owner=ops.owner)
        assert await stored(ledger) == before

        with pytest.raises(Overloaded):
            await keys.rotate("ops", Seconds(60))
        assert await stored(ledger) == before
    finally:
        private_redis.send(signal.SIGCONT)
        await ledger.close()


def test_who_is_told_to_repeat_is_told_how(serve: Callable[..., ServedApp]) -> None:
    unsure = serve(redis_ack="replica").client  # there is no replica
    file = {"file": ("a.txt", b"text")}

    made = unsure.post("/v1/tasks", json={"input": "a"})
    unsure.post("/v1/files", data={"purpose": "user_data"}, files=file)
    path = f"/v1/files/{unsure.get('/v1/files').json()['data'][0]['id']}"
    deleted, again = unsure.delete(path), unsure.delete(path)

    assert (code_of(made), code_of(deleted)) == ((503, "not_replicated"),) * 2
    assert "same Idempotency-Key" in made.json()["detail"]
    assert "Idempotency-Key" not in deleted.json()["detail"]
    assert "404 or 410" in deleted.json()["detail"]
    assert code_of(again) == (404, "file_not_found")


def test_a_service_that_requires_keys_is_closed_before_the_first(
    serve: Callable[..., ServedApp], redis_url: str
) -> None:
    client = serve(allow_unauthenticated=False).client
    assert code_of(client.get("/v1/models")) == (401, "invalid_api_key")

    ops = found(client, redis_url)

    assert client.get("/v1/models", headers=ops).status_code == 200


def test_keys_of_the_environment_stay_and_some_manage(serve: Callable[..., ServedApp]) -> None:
    client = serve(api_keys=MANAGED_KEYS).client
    refused = client.post("/v1/keys", json={"name": "acme"}, headers=BOB)
    assert code_of(refused) == (403, "scope_missing")
    assert "name:sha256:admin" in refused.json()["detail"]  # `embedq keys limits` knows no bob
    assert code_of(client.post("/v1/keys", json={"name": "bob"}, headers=ANN)) == (409, "key_exists")

    acme = make_key(client, ANN, "acme")

    assert client.get("/v1/key", headers=acme).json()["scopes"] == ["online", "bulk", "files", "ingest", "read"]
    sources = {one["name"]: one["source"] for one in client.get("/v1/keys", headers=ANN).json()["data"]}
    assert sources == {"acme": "ledger", "ann": "environment", "bob": "environment"}
    assert client.get("/v1/keys/bob", headers=ANN).json()["source"] == "environment"
    assert code_of(client.post("/v1/keys/bob/revoke", headers=ANN)) == (404, "key_not_found")


def test_a_key_may_do_what_its_scopes_say(client: httpx.Client, admin: dict[str, str]) -> None:
    online = make_key(client, admin, "online", scopes=["online"])
    bulk = make_key(client, admin, "bulk", scopes=["bulk"])
    reader = make_key(client, admin, "reader", scopes=["read"])
    task = client.post("/v1/tasks", json={"input": "a"}, headers=online).json()["links"]["self"]

    assert client.get(task, headers=online).status_code == 200
    assert client.get("/v1/models", headers=online).status_code == 200
    for refused in (
        client.post("/v1/tasks", json={"input": "a", "lane": "bulk"}, headers=online),
        client.post("/v1/tasks", json={"input": "a"}, headers=bulk),
        client.post("/v1/tasks", json={"input": "a"}, headers=reader),
        client.get("/v1/tasks", headers=online),
        client.get("/v1/keys", headers=reader),
    ):
        assert code_of(refused) == (403, "scope_missing")
        assert refused.headers["x-should-retry"] == "false"
    assert client.post("/v1/tasks", json={"input": "a", "lane": "bulk"}, headers=bulk).status_code == 202
    assert client.get("/v1/tasks", headers=reader).status_code == 200


def test_other_clients_are_refused_in_their_own_form(client: httpx.Client, admin: dict[str, str]) -> None:
    reader = make_key(client, admin, "reader", scopes=["read"])

    theirs = client.post("/embed", json={"inputs": "a"}, headers=reader)
    openai = client.post("/v1/embeddings", json={"input": "a"}, headers=reader)

    assert (theirs.status_code, set(theirs.json())) == (403, {"error", "error_type"})
    assert "scope online" in theirs.json()["error"]
    assert theirs.json()["error"].endswith("embedq keys limits reader --scopes online,read")  # --scopes names them all
    assert openai.json()["error"] == {
        "message": theirs.json()["error"],
        "type": "permission_error",
        "param": None,
        "code": "scope_missing",
    }


def test_a_name_is_given_once(client: httpx.Client, admin: dict[str, str]) -> None:
    make_key(client, admin, "acme")
    for name in ("acme", "ops"):
        assert code_of(client.post("/v1/keys", json={"name": name}, headers=admin)) == (409, "key_exists")
    client.post("/v1/keys/acme/revoke", headers=admin)
    assert code_of(client.post("/v1/keys", json={"name": "acme"}, headers=admin)) == (409, "key_exists")
    for name in ("", "anonymous", "a b", "a:b", "x" * 49, "\u0430lice", "b\u00f6b", "a\n"):
        assert code_of(client.post("/v1/keys", json={"name": name}, headers=admin)) == (400, "invalid_value")


def test_rotation_ends_the_old_text_now_or_later(client: httpx.Client, admin: dict[str, str]) -> None:
    first = make_key(client, admin, "acme")

    second = bearer(client.post("/v1/keys/acme/rotate", json={"grace_seconds": 60}, headers=admin).json()["key"])
    assert {client.get("/v1/key", headers=one).status_code for one in (first, second)} == {200}
    third = bearer(client.post("/v1/keys/acme/rotate", json={}, headers=admin).json()["key"])

    assert client.get("/v1/key", headers=third).status_code == 200
    for old in (first, second):
        assert code_of(client.get("/v1/key", headers=old)) == (401, "invalid_api_key")


def test_limits_scopes_and_end_change_while_it_runs(client: httpx.Client, admin: dict[str, str]) -> None:
    acme = make_key(client, admin, "acme", limits={"tokens_per_minute": 10, "sinks": ["a/*"]}, expires_in=3600)

    def change(**fields: Any) -> dict[str, Any]:
        answer = client.post("/v1/keys/acme", json=fields, headers=admin)
        assert answer.status_code == 200, answer.text
        own: dict[str, Any] = client.get("/v1/key", headers=acme).json()
        return own

    before = client.get("/v1/key", headers=acme).json()
    assert before["limits"]["tokens_per_minute"] == 10
    assert before["expires_at"] is not None
    after = change(limits={"tokens_per_minute": None, "open_jobs": 3}, scopes=["read"], expires_in=None)
    assert (after["limits"]["tokens_per_minute"], after["limits"]["open_jobs"]) == (None, 3)
    assert (after["limits"]["sinks"], after["scopes"], after["expires_at"]) == (["a/*"], ["read"], None)
    assert set(change(limits=None)["limits"].values()) == {None}
    numbers: list[dict[str, Any]] = [
        {"limits": {"stored_bytes": "5"}},
        {"limits": {"open_jobs": True}},
        {"limits": {"requests_per_second": "5"}},
        {"expires_in": "5"},
    ]
    for wrong in numbers:
        assert code_of(client.post("/v1/keys/acme", json=wrong, headers=admin)) == (400, "invalid_type"), wrong
    wrongs: list[dict[str, Any]] = [
        {"limits": {"open_job": 1}},
        {"limits": {"open_jobs": 0}},
        {"limits": {"requests_per_second": 5e-324}},
        {"scopes": []},
        {"scopes": ["root"]},
    ]
    for wrong in wrongs:
        assert client.post("/v1/keys/acme", json=wrong, headers=admin).status_code == 400, wrong


def test_a_revoked_key_is_refused_in_every_process_within_a_second(
    serve: Callable[..., ServedApp], app: ServedApp, client: httpx.Client, admin: dict[str, str]
) -> None:
    other = serve().client
    acme = make_key(client, admin, "acme")
    wait_until(lambda: other.get("/v1/key", headers=acme).status_code == 200)

    revoked = client.post("/v1/keys/acme/revoke", headers=admin).json()

    assert code_of(client.get("/v1/key", headers=acme)) == (401, "invalid_api_key")
    wait_until(lambda: other.get("/v1/key", headers=acme).status_code == 401)
    assert client.post("/v1/keys/acme/revoke", headers=admin).json() == revoked
    for path, body in (("", {"limits": None}), ("/rotate", {})):
        assert code_of(client.post(f"/v1/keys/acme{path}", json=body, headers=admin)) == (409, "key_revoked")
    assert code_of(client.delete("/v1/keys/acme", headers=admin)) == (409, "key_in_use")


def test_what_waits_when_its_key_is_revoked_ends_by_itself(
    app: ServedApp, client: httpx.Client, admin: dict[str, str], worker: LedgerWorker
) -> None:
    acme = make_key(client, admin, "acme")
    task = client.post("/v1/tasks", json={"input": "a"}, headers=acme).json()["links"]["self"]
    with ThreadPoolExecutor() as threads:
        polled = threads.submit(client.get, task, params={"wait": 20}, headers=acme)
        asked = threads.submit(client.post, "/v1/embeddings", json={"input": "b"}, headers=acme)
        wait_until(lambda: app.process.subscription.waiting_requests == 2)
        client.post("/v1/keys/acme/revoke", headers=admin)
        assert code_of(client.get(task, headers=acme)) == (401, "invalid_api_key")
        with worker.serving():
            assert polled.result().json()["status"] == "completed"
            assert asked.result().json()["data"]


def test_a_key_ends_by_itself(client: httpx.Client, admin: dict[str, str]) -> None:
    acme = make_key(client, admin, "acme", expires_in=0.3)
    wait_until(lambda: client.get("/v1/key", headers=acme).status_code == 401)
    assert "expired" in client.get("/v1/key", headers=acme).json()["detail"]


@pytest.fixture
def without_redis(private_redis: RedisServer, tmp_path: Path) -> tuple[RedisServer, dict[str, str]]:
    """A Redis that has a key and is away."""
    with ServedApp(private_redis.url, storage_url=str(tmp_path / "storage")) as served:
        acme = found(served.client, private_redis.url, "acme")
        private_redis.kill()
        assert served.client.get("/v1/key", headers=acme).status_code == 200
        assert code_of(served.client.get("/v1/key", headers=bearer("x"))) == (401, "invalid_api_key")
    return private_redis, acme


def test_an_api_that_has_never_seen_redis_lets_in_whom_the_settings_name(
    without_redis: tuple[RedisServer, dict[str, str]],
) -> None:
    redis, acme = without_redis
    with ServedApp(redis.url, api_keys=KEYS) as served:
        assert served.client.get("/v1/key", headers=ANN).status_code == 200
        assert code_of(served.client.get("/v1/key", headers=acme)) == (503, "redis_unavailable")
        assert code_of(served.client.get("/v1/key")) == (401, "invalid_api_key")
    with ServedApp(redis.url) as served:
        assert code_of(served.client.get("/v1/key")) == (503, "redis_unavailable")
        assert code_of(served.client.get("/v1/datasets")) == (503, "redis_unavailable")
        redis.start()
        wait_until(lambda: served.client.get("/v1/key", headers=acme).status_code == 200)
        assert code_of(served.client.get("/v1/key")) == (401, "invalid_api_key")


def test_a_key_of_another_version_is_left_alone_and_says_so(
    client: httpx.Client, admin: dict[str, str], redis_client: redis.Redis
) -> None:
    acme = make_key(client, admin, "acme")
    [place] = [name for name in redis_client.keys("eq:key:*") if b"acme" in (redis_client.hget(name, "s") or b"")]
    text = redis_client.hget(place, "s")
    assert isinstance(text, bytes)
    redis_client.hset(place, "s", text.replace(b'"digests"', b'"hashes"'))
    redis_client.hset("eq:changes", "key", "another")
    wait_until(lambda: client.get("/v1/key", headers=acme).status_code == 401)
    for path in ("", "/rotate", "/revoke", "/purge"):
        refused = client.post(f"/v1/keys/acme{path}", json={}, headers=admin)
        assert code_of(refused) == (409, "key_unreadable"), path
        assert "another version" in refused.json()["detail"]
    assert code_of(client.get("/v1/keys/acme", headers=admin)) == (409, "key_unreadable")
    assert code_of(client.delete("/v1/keys/acme", headers=admin)) == (409, "key_unreadable")
    assert code_of(client.post("/v1/keys", json={"name": "acme"}, headers=admin)) == (409, "key_exists")
    assert [one["name"] for one in client.get("/v1/keys", headers=admin).json()["data"]] == ["ops"]
