"""Keys over HTTP: who may make them, what each may do and how much of it, and what changes while the service runs."""

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, MANAGED_KEYS, Serve, ServedApp, bearer, code_of, make_key
from tests.made_keys import found
from tests.processes import RedisServer, wait_until

Header = dict[str, str]
UNKNOWN, MISSING = (401, "invalid_api_key"), (403, "scope_missing")
USUAL = ["online", "bulk", "files", "ingest", "read"]


def ask(client: httpx.Client, key: Header, text: str = "a", *, lane: str = "online") -> httpx.Response:
    return client.post("/v1/tasks", json={"input": text, "lane": lane}, headers=key)


def own(client: httpx.Client, key: Header | None = None) -> httpx.Response:
    return client.get("/v1/key", headers=key)


def change(client: httpx.Client, admin: Header, path: str, **body: Any) -> httpx.Response:
    return client.post(f"/v1/keys/{path}", json=body, headers=admin)


# ---- who is let in ---------------------------------------------------------------------------------------------------


def test_the_first_key_closes_the_service_and_has_all_scopes(
    client: httpx.Client, serve: Serve, redis_url: str
) -> None:
    closed = serve(allow_unauthenticated=False).client
    assert code_of(closed.get("/v1/models")) == UNKNOWN
    assert client.get("/v1/models").status_code == 200
    keys = []

    def body() -> Iterator[bytes]:
        yield b'{"name": "late", '
        keys.append(found(client, redis_url))
        yield b'"scopes": ["admin"]}'

    # Who was let in before the first key makes no other.
    late = client.post("/v1/keys", content=body(), headers={"content-type": "application/json"})
    assert code_of(late) == MISSING
    [ops] = keys
    for each in (client.get("/v1/models"), client.post("/v1/keys", json={"name": "second"})):
        assert code_of(each) == UNKNOWN
    shown = own(client, ops).json()
    assert (shown["name"], shown["scopes"]) == ("ops", [*USUAL, "operate", "admin"])
    [listed] = client.get("/v1/keys", headers=ops).json()["data"]
    assert (listed["name"], "key" in listed) == ("ops", False)
    wait_until(lambda: closed.get("/v1/models", headers=ops).status_code == 200)

    # Through Redis, a key has the usual scopes once there is one that manages.
    assert own(client, found(client, redis_url, "second")).json()["scopes"] == USUAL
    assert change(client, ops, "ops/revoke").status_code == 200
    third = found(client, redis_url, "third")
    assert "admin" in own(client, third).json()["scopes"], "nobody else could manage any more"


SENT: list[tuple[Header, str]] = [
    (ANN, "ann"),
    ({"authorization": "BEARER  key of bob"}, "bob"),
    ({"api-key": "key of bob"}, "bob"),
    (ANN | {"x-api-key": "wrong"}, "ann"),
    ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "key of bob"}, "bob"),  # a client that needs one
    ({"authorization": "Basic eDp5", "api-key": "key of bob", "x-api-key": "x"}, "bob"),
    (ANN | {"api-key": "key of bob"}, "ann"),
    ({}, ""),
    ({"authorization": "Bearer"}, ""),
    ({"authorization": "Token key of ann"}, ""),
    (bearer(hashlib.sha256(b"key of ann").hexdigest()), ""),
    ({"x-api-key": ""}, ""),
    ({"x-api-key": "k\u00e9y"}, ""),
    ({"authorization": "Bearer x", "api-key": "y", "x-api-key": "z"}, ""),
]
"""Headers, and whose key they hold; "": nobody's."""


def test_a_known_key_is_let_in_and_nobody_else(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = serve(api_keys=KEYS).client
    for headers, name in SENT:
        answer = client.get("/v1/key", headers=[(each.encode(), value.encode()) for each, value in headers.items()])
        assert answer.json().get("name", "") == name, headers
        assert name or (code_of(answer), answer.headers["www-authenticate"]) == (UNKNOWN, "Bearer"), headers
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "requests without a known API key: 1 x from 127.0.0.1"


CALLERS: list[Header] = [
    {},  # a program on this machine, or a proxy that says nothing of those for whom it calls
    {"host": "127.0.0.1:8000"},  # of nginx since 1.29.7: HTTP/1.1 and the name of its upstream
    {"host": "localhost"},  # HAProxy passes on what the caller has chosen
    {"x-forwarded-for": "10.0.0.1", "forwarded": "for=10.0.0.1", "via": "1.1 proxy"},
    {"authorization": "Bearer embedq_guessed"},
]


def test_nobody_manages_keys_over_http_without_one(serve: Serve) -> None:
    paths = [("POST", "/v1/keys"), ("GET", "/v1/keys"), ("POST", "/v1/keys/anonymous/purge")]
    for closed, code in ((False, MISSING), (True, UNKNOWN)):
        client = serve(allowed_hosts="*", allow_unauthenticated=not closed).client
        for headers, (method, path) in product(CALLERS, paths):
            refused = client.request(method, path, json={"name": "mine"}, headers=headers)
            assert code_of(refused) == code, headers
            assert closed or "embedq keys create NAME" in refused.json()["detail"]


def test_no_text_is_valid_that_nobody_was_told(serve: Serve, redis_url: str) -> None:
    unsure, sure = serve(redis_ack="replica").client, serve().client  # there is no replica
    made = ask(unsure, {})
    assert code_of(made) == (503, "not_replicated")
    assert "same Idempotency-Key" in made.json()["detail"]
    ops = found(sure, redis_url)
    wait_until(lambda: own(unsure, ops).json().get("name") == "ops")
    assert code_of(unsure.post("/v1/keys", json={"name": "lost"}, headers=ops)) == (503, "not_replicated")
    assert code_of(sure.get("/v1/keys/lost", headers=ops)) == (404, "key_not_found")
    assert code_of(change(unsure, ops, "ops/rotate")) == (503, "not_replicated")
    # It may have seen the change before it was undone, and looks again half a second later.
    wait_until(lambda: sure.get("/v1/keys/ops", headers=ops).status_code == 200, message="the key as it was")


def test_keys_of_the_environment_stay_and_some_manage(serve: Serve, redis_url: str) -> None:
    open_to_all = serve().client
    ops = found(open_to_all, redis_url)
    of_record = make_key(open_to_all, ops, "ann", limits={"requests_per_second": 0.01, "queued_tokens": 1})
    client = serve(api_keys=MANAGED_KEYS).client
    for _ in range(3):
        assert ask(client, ANN, "x" * 400).status_code == 202, "it has nothing of a record of the same name"
    assert own(client, ANN).json()["owner"] != own(open_to_all, of_record).json()["owner"]

    refused = client.post("/v1/keys", json={"name": "acme"}, headers=BOB)
    assert code_of(refused) == MISSING
    assert "name:sha256:admin" in refused.json()["detail"]  # `embedq keys limits` knows no bob
    assert code_of(client.post("/v1/keys", json={"name": "bob"}, headers=ANN)) == (409, "key_exists")
    assert own(client, make_key(client, ANN, "acme")).json()["scopes"] == USUAL
    sources = {(one["name"], one["source"]) for one in client.get("/v1/keys", headers=ANN).json()["data"]}
    assert sources >= {("acme", "ledger"), ("ann", "environment"), ("bob", "environment")}
    assert client.get("/v1/keys/bob", headers=ANN).json()["source"] == "environment"
    assert code_of(change(client, ANN, "bob/revoke")) == (404, "key_not_found")


def test_an_api_that_has_never_seen_redis_lets_in_whom_the_settings_name(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    with ServedApp(private_redis.url, storage_url=str(tmp_path / "storage")) as served:
        acme = found(served.client, private_redis.url, "acme")
        private_redis.kill()
        assert own(served.client, acme).status_code == 200
        assert code_of(own(served.client, bearer("x"))) == UNKNOWN
    with ServedApp(private_redis.url, api_keys=KEYS) as served:
        assert own(served.client, ANN).status_code == 200
        assert code_of(own(served.client, acme)) == (503, "redis_unavailable")
        assert code_of(own(served.client)) == UNKNOWN
    with ServedApp(private_redis.url) as served:
        for path in ("/v1/key", "/v1/datasets"):
            assert code_of(served.client.get(path)) == (503, "redis_unavailable")
        private_redis.start()
        wait_until(lambda: own(served.client, acme).status_code == 200)
        assert code_of(own(served.client)) == UNKNOWN


# ---- what a key may do -----------------------------------------------------------------------------------------------


def test_a_key_may_do_what_its_scopes_say(client: httpx.Client, admin: Header) -> None:
    online, bulk, reader = (make_key(client, admin, name, scopes=[name]) for name in ("online", "bulk", "read"))
    task = ask(client, online).json()["links"]["self"]
    for path in (task, "/v1/models"):
        assert client.get(path, headers=online).status_code == 200
    for refused in (
        ask(client, online, lane="bulk"),
        ask(client, bulk),
        ask(client, reader),
        client.get("/v1/tasks", headers=online),
        client.get("/v1/keys", headers=reader),
    ):
        assert code_of(refused) == MISSING
        assert refused.headers["x-should-retry"] == "false"
    assert ask(client, bulk, lane="bulk").status_code == 202
    assert client.get("/v1/tasks", headers=reader).status_code == 200

    # Other clients are refused in their own form.
    theirs = client.post("/embed", json={"inputs": "a"}, headers=reader)
    openai = client.post("/v1/embeddings", json={"input": "a"}, headers=reader)
    told = theirs.json()["error"]
    assert (theirs.status_code, set(theirs.json())) == (403, {"error", "error_type"})
    assert told.endswith("embedq keys limits read --scopes online,read")  # --scopes names them all
    error = {"message": told, "type": "permission_error", "param": None, "code": "scope_missing"}
    assert openai.json()["error"] == error


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"limits": {"stored_bytes": "5"}}, "invalid_type"),
    ({"limits": {"open_jobs": True}}, "invalid_type"),
    ({"expires_in": "5"}, "invalid_type"),
    ({"limits": {"open_job": 1}}, "unknown_parameter"),
    ({"limits": {"open_jobs": 0}}, "invalid_value"),
    ({"limits": {"requests_per_second": 5e-324}}, "invalid_value"),
    ({"scopes": []}, "invalid_value"),
    ({"scopes": ["root"]}, "invalid_value"),
]


def test_name_text_limits_scopes_and_end_of_a_key(client: httpx.Client, admin: Header) -> None:
    first = make_key(client, admin, "acme", limits={"tokens_per_minute": 10, "sinks": ["a/*"]}, expires_in=3600)
    second = bearer(change(client, admin, "acme/rotate", grace_seconds=60).json()["key"])
    assert {own(client, one).status_code for one in (first, second)} == {200}
    third = bearer(change(client, admin, "acme/rotate").json()["key"])
    assert {code_of(own(client, old)) for old in (first, second)} == {UNKNOWN}
    assert own(client, third).json()["expires_at"] is not None
    change(client, admin, "acme", limits={"tokens_per_minute": None, "open_jobs": 3}, scopes=["read"], expires_in=None)
    after = own(client, third).json()
    assert after["limits"] == after["limits"] | {"tokens_per_minute": None, "open_jobs": 3, "sinks": ["a/*"]}
    assert (after["scopes"], after["expires_at"]) == (["read"], None)
    for wrong, code in WRONG:
        assert code_of(change(client, admin, "acme", **wrong)) == (400, code), wrong
    for name in ("acme", "ops"):  # given once
        assert code_of(client.post("/v1/keys", json={"name": name}, headers=admin)) == (409, "key_exists")
    for name in ("", "anonymous", "a b", "a:b", "x" * 49, "\u0430lice", "b\u00f6b", "a\n"):
        assert code_of(client.post("/v1/keys", json={"name": name}, headers=admin)) == (400, "invalid_value")
    change(client, admin, "acme", expires_in=0.3, limits=None).raise_for_status()
    wait_until(lambda: own(client, third).status_code == 401)
    assert "expired" in own(client, third).json()["detail"]


def test_a_revoked_key_is_refused_in_every_process_within_a_second_and_what_waits_goes_on(
    serve: Serve, app: ServedApp, client: httpx.Client, admin: Header, worker: LedgerWorker
) -> None:
    other, acme = serve().client, make_key(client, admin, "acme")
    wait_until(lambda: own(other, acme).status_code == 200)
    task = ask(client, acme).json()["links"]["self"]
    with ThreadPoolExecutor() as threads:
        polled = threads.submit(client.get, task, params={"wait": 20}, headers=acme)
        asked = threads.submit(client.post, "/v1/embeddings", json={"input": "b"}, headers=acme)
        wait_until(lambda: app.process.subscription.waiting_requests == 2)
        revoked = change(client, admin, "acme/revoke").json()
        assert code_of(own(client, acme)) == UNKNOWN
        wait_until(lambda: own(other, acme).status_code == 401)
        assert change(client, admin, "acme/revoke").json() == revoked
        with worker.serving():
            assert polled.result().json()["status"] == "completed"
            assert asked.result().json()["data"]
    for refused in (change(client, admin, "acme", limits=None), change(client, admin, "acme/rotate")):
        assert code_of(refused) == (409, "key_revoked")
    assert code_of(client.delete("/v1/keys/acme", headers=admin)) == (409, "key_in_use")


# ---- how much --------------------------------------------------------------------------------------------------------


def test_requests_of_a_key_are_counted_and_those_of_others_are_not(client: httpx.Client, admin: Header) -> None:
    slow = make_key(client, admin, "slow", limits={"requests_per_second": 0.01})
    answers = [client.get("/v1/models", headers=slow) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert code_of(answers[1]) == (429, "rate_limited")
    assert "requests_per_second is 0.01" in answers[1].json()["error"]["message"]
    assert 90 <= int(answers[1].headers["retry-after"]) <= 125
    assert client.post("/embed", json={"inputs": "a"}, headers=slow).json()["error_type"] == "Overloaded"
    assert client.get("/v1/models", headers=admin).status_code == 200

    change(client, admin, "slow", limits={"requests_per_second": 1000}).raise_for_status()
    wait_until(lambda: client.get("/v1/models", headers=slow).status_code == 200, message="another limit counts")


def test_tokens_queues_jobs_and_bytes_of_a_key(client: httpx.Client, admin: Header) -> None:
    told = {"tokens_per_minute": "rate_limited", "queued_tokens": "key_limit", "open_jobs": "key_limit"}
    text = "x" * 40  # ten tokens, as they are estimated
    for name, code in told.items():
        key = make_key(client, admin, name.replace("_", "-"), limits={name: 1 if name == "open_jobs" else 10})
        first, again = (ask(client, key | {"idempotency-key": "a"}, text) for _ in range(2))
        assert (first.status_code, again.status_code, again.json()["id"]) == (202, 202, first.json()["id"])
        refused = ask(client, key, text)
        assert code_of(refused) == (429, code), name
        assert name in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        if name == "tokens_per_minute":
            whole = ask(client, key, text + text)
            assert code_of(whole) == (429, "key_limit")
            assert (whole.headers["x-should-retry"], "retry-after" in whole.headers) == ("false", False)
    assert ask(client, admin, text).status_code == 202

    small = make_key(client, admin, "small", limits={"stored_bytes": 100})  # in the place of the quota
    form: dict[str, Any] = {"files": {"file": ("a.txt", b"x" * 90)}, "data": {"purpose": "user_data"}}
    assert client.post("/v1/files", headers=small, **form).status_code == 200
    assert code_of(client.post("/v1/files", headers=small, **form)) == (403, "quota_exceeded")
    assert client.post("/v1/files", headers=admin, **form).status_code == 200


def test_the_headers_are_of_the_limit_that_leaves_least(app: ServedApp, worker: LedgerWorker, admin: Header) -> None:
    limits = {"tokens_per_minute": 1000, "requests_per_second": 5}
    key = make_key(app.client, admin, "limited", limits=limits)
    app.process.ledger.frozen_ms = round(time.time() * 1000)  # nothing comes back meanwhile
    with worker.serving():
        first, second, free = (
            app.client.post("/v1/embeddings", json={"input": text * 40}, headers=who).headers
            for text, who in (("a", key), ("b", key), ("c", admin))
        )
    assert (first["x-ratelimit-limit-tokens"], first["x-ratelimit-limit-requests"]) == ("1000", "5")
    assert [one["x-ratelimit-remaining-tokens"] for one in (first, second)] == ["990", "980"]
    assert first["x-ratelimit-remaining-requests"] == "4"  # a second comes back soon
    assert [one["x-ratelimit-reset-tokens"] for one in (first, second)] == ["1s", "2s"]
    assert int(free["x-ratelimit-limit-tokens"]) > 1000
