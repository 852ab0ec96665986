"""Web pages of other origins: what a browser is told, and what a server without keys refuses."""

from collections.abc import Callable
from itertools import product
from typing import Any

import httpx
import redis

from api.app import READABLE
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, KEYS, ServedApp, code_of

PAGE, OTHER, EVIL = "https://app.example.org", "https://elsewhere.example.org", "https://evil.example"
ASK = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}
FORM: dict[str, Any] = {"files": {"file": ("a.txt", b"text")}, "data": {"purpose": "user_data"}}


def allowed(answer: httpx.Response) -> str | None:
    assert answer.headers["x-request-id"]
    origin: str | None = answer.headers.get("access-control-allow-origin")
    return origin


def test_a_page_may_ask_call_and_read(
    worker: LedgerWorker, serve: Callable[..., ServedApp], redis_client: redis.Redis
) -> None:
    closed, browser, any_page = (serve(**cors).client for cors in ({}, {"cors_origins": PAGE}, {"cors_origins": "*"}))
    asked = closed.options("/v1/embeddings", headers={"origin": PAGE, **ASK})
    assert (asked.status_code, allowed(asked)) == (405, None)
    assert allowed(closed.get("/v1/models", headers={"origin": PAGE})) is None

    browser.headers["origin"] = PAGE
    asked = browser.options("/v1/embeddings", headers=ASK)
    answer = browser.post("/v1/tasks", json={"input": "one"}, headers={"sec-fetch-site": "cross-site"})
    assert (asked.status_code, allowed(asked)) == (200, PAGE)
    assert asked.headers["x-content-type-options"] == "nosniff"
    may_send = {*asked.headers["access-control-allow-headers"].replace(" ", "").split(",")}
    assert {*ASK["access-control-request-headers"].split(",")} <= may_send
    assert "access-control-allow-credentials" not in asked.headers
    for found in (answer, browser.get(answer.headers["location"])):
        assert allowed(found) == PAGE
        assert {*found.headers["access-control-expose-headers"].split(", ")} == {*READABLE}
        assert "Origin" in found.headers["vary"]
    assert {"x-request-id", "retry-after", "location", "x-ratelimit-remaining-tokens"} <= {*READABLE}

    foreign = {"origin": OTHER, "sec-fetch-site": "cross-site"}
    asked = browser.options("/v1/embeddings", headers={**ASK, "origin": OTHER})
    assert (asked.status_code, allowed(asked)) == (400, None)
    assert allowed(browser.get("/v1/models", headers={"origin": OTHER})) is None
    assert code_of(browser.post("/v1/tasks", json={}, headers=foreign)) == (403, "origin_not_allowed")
    assert any_page.post("/v1/tasks", json={"input": "one"}, headers=foreign).status_code == 202

    # Errors are read too: of a route, of none, and of a defect.
    for path in ("/v1/embeddings", "/v1/nothing", "/v1/tasks/task_x"):
        assert allowed(browser.post(path, content=b"{")) == PAGE
    hosts = {"a;b": "invalid_http", "evil.example": "host_not_allowed", "localhost": "route_not_found"}
    for host, code in hosts.items():
        answer = browser.get("/v1/tasks%0A", headers={"host": host})
        assert (answer.json()["error"]["code"], allowed(answer)) == (code, PAGE)
    task_id = "task_01a1fa1818cc7626bb9271b2af5733d5"
    redis_client.set(f"eq:task:{task_id}", "not a hash", ex=60)
    answer = browser.get(f"/v1/tasks/{task_id}")
    assert (answer.status_code, allowed(answer)) == (500, PAGE)


# ---- without keys ----------------------------------------------------------------------------------------------------

FOREIGN = (
    "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil", "internal.evil", "evil.internal",
    "evil_name:65535", "",
)  # fmt: skip
NO_HOSTS = (
    "[::1].evil.com", "localhost:80@evil.com", "localhost/evil.com", "a b", "localhost:port", "[::1",
    "127.0.0.1:8000:1", "localhost:99999", ":80", "\xe9", "<x>", "a;b", "a%00", "a\x7f",
)  # fmt: skip
NO_ORIGINS = (
    "localhost", "http://a b", "http://[::1].evil.com", "http://localhost@evil.com", "http://", "http://:80",
    "http://localhost:99999", "http://<x>", "http://a;b", "http://a%00",
)  # fmt: skip
OURS = (
    "localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:8000", "a.localhost", "localhost.",
    "host.docker.internal:8000",
)  # fmt: skip
STRANGERS = [
    {"origin": EVIL},
    {"origin": "null"},
    {"origin": EVIL, "sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "cross-site"},
    {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "https://127.0.0.1"},
]


def test_a_name_that_is_not_ours_is_refused(client: httpx.Client, serve: Callable[..., ServedApp]) -> None:
    calls = [("GET", "/v1/tasks"), ("GET", "/metrics"), ("POST", "/v1/tasks"), ("DELETE", "/v1/tasks/x")]
    for host, (method, path) in product(FOREIGN, calls):
        answer = client.request(method, path, headers={"host": host})
        assert code_of(answer) == (403, "host_not_allowed"), (host, path)
        assert answer.headers["x-request-id"]
    assert client.get("/health", headers={"host": EVIL[8:]}).json()["error_type"] == "Validation"
    for host in OURS:
        assert client.get("/v1/models", headers={"host": host}).status_code == 200, host
    for name, values in ((b"host", NO_HOSTS), (b"origin", NO_ORIGINS)):
        for value in values:
            answer = client.get("/v1/tasks", headers={name: value.encode("latin-1")})
            assert answer.json()["error"]["code"] == "invalid_http", value

    # Names may be added; behind keys or in public any will do.
    named, any_name = serve(allowed_hosts="embed.example.org,api").client, serve(allowed_hosts="*").client
    public = serve(host="0.0.0.0", allow_unauthenticated=True).client  # noqa: S104 - only a setting here
    keyed, elsewhere = serve(api_keys=KEYS).client, {"host": "example.org", "origin": EVIL}
    for host in ("embed.example.org", "Api:8000", "localhost"):
        assert named.get("/health/live", headers={"host": host}).status_code == 200
    assert code_of(named.get("/health/live", headers=elsewhere)) == (403, "host_not_allowed")
    assert any_name.get("/health/live", headers=elsewhere).status_code == 200
    assert public.get("/v1/models", headers=elsewhere).status_code == 200
    assert keyed.post("/v1/tasks", headers=elsewhere).status_code == 401
    assert keyed.post("/v1/files", headers=elsewhere | ANN, **FORM).status_code == 200


def test_a_page_of_another_origin_changes_nothing(client: httpx.Client) -> None:
    for headers in STRANGERS:
        assert code_of(client.post("/v1/files", headers=headers, **FORM)) == (403, "origin_not_allowed"), headers
        for method, path in (("POST", "/v1/tasks/x/cancel"), ("DELETE", "/v1/files/x"), ("POST", "/v1/embeddings")):
            assert code_of(client.request(method, path, headers=headers)) == (403, "origin_not_allowed"), headers
        assert client.post("/embed", headers=headers).json()["error_type"] == "Validation"
        assert client.get("/v1/files", headers=headers).json()["data"] == []

    own, host = str(client.base_url).rstrip("/"), client.base_url.netloc.decode()
    for headers in ({}, {"origin": own}, {"origin": own, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert client.post("/v1/files", headers=headers, **FORM).status_code == 200
    over_tls = {"origin": f"https://{host}"}  # the scheme of a page is compared
    assert code_of(client.post("/v1/files", headers=over_tls, **FORM)) == (403, "origin_not_allowed")
    assert client.post("/v1/files", headers={**over_tls, "x-forwarded-proto": "https"}, **FORM).status_code == 200
