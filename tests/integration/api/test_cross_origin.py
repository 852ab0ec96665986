"""Web pages of other origins: what a browser is told, and what a server without keys refuses."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import httpx
import pytest
import redis

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp

PAGE, OTHER = "https://app.example.org", "https://elsewhere.example.org"
READABLE = {
    "x-request-id", "retry-after", "location", "etag", "x-should-retry", "openai-processing-ms",
    "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
    "accept-ranges", "content-disposition", "content-range", "www-authenticate",
}  # fmt: skip
ASK = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


def allowed(answer: httpx.Response) -> str | None:
    assert answer.headers["x-request-id"]
    origin: str | None = answer.headers.get("access-control-allow-origin")
    return origin


@pytest.fixture
def browser(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> httpx.Client:
    client = serve(cors_origins=PAGE).client
    client.headers["origin"] = PAGE
    return client


def test_by_default_no_page_may_call(client: httpx.Client) -> None:
    asked = client.options("/v1/embeddings", headers={"origin": PAGE, **ASK})

    assert (asked.status_code, allowed(asked)) == (405, None)
    assert allowed(client.get("/v1/models", headers={"origin": PAGE})) is None


def test_a_page_may_ask_call_and_read(browser: httpx.Client) -> None:
    asked = browser.options("/v1/embeddings", headers=ASK)
    answer = browser.post("/v1/tasks", json={"input": "one"})
    task = browser.get(answer.headers["location"])

    assert (asked.status_code, allowed(asked)) == (200, PAGE)
    assert asked.headers["x-content-type-options"] == "nosniff"
    assert set(ASK["access-control-request-headers"].split(",")) <= set(
        asked.headers["access-control-allow-headers"].replace(" ", "").split(",")
    )
    assert "access-control-allow-credentials" not in asked.headers
    for found in (answer, task):
        assert allowed(found) == PAGE
        assert set(found.headers["access-control-expose-headers"].split(", ")) == READABLE
        assert "Origin" in found.headers["vary"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/nothing", "/v1/tasks/task_x"])
def test_a_page_may_read_errors(browser: httpx.Client, path: str) -> None:
    assert allowed(browser.post(path, content=b"{")) == PAGE


@pytest.mark.parametrize(
    ("host", "code"), [("a;b", "invalid_http"), ("evil.example", "host_not_allowed"), ("localhost", "route_not_found")]
)
def test_a_page_may_read_what_no_route_has_said(browser: httpx.Client, host: str, code: str) -> None:
    answer = browser.get("/v1/tasks%0A", headers={"host": host})

    assert (answer.json()["error"]["code"], allowed(answer)) == (code, PAGE)


def test_a_page_may_read_that_the_server_has_a_defect(browser: httpx.Client, redis_client: redis.Redis) -> None:
    task_id = "task_01a1fa1818cc7626bb9271b2af5733d5"
    redis_client.set(f"eq:task:{task_id}", "not a hash", ex=60)
    answer = browser.get(f"/v1/tasks/{task_id}")

    assert (answer.status_code, allowed(answer)) == (500, PAGE)


def test_another_page_may_not(browser: httpx.Client) -> None:
    asked = browser.options("/v1/embeddings", headers={**ASK, "origin": OTHER})

    assert (asked.status_code, allowed(asked)) == (400, None)
    assert allowed(browser.get("/v1/models", headers={"origin": OTHER})) is None


# ---- without keys ----------------------------------------------------------------------------------------------------

FORM: dict[str, Any] = {"files": {"file": ("a.txt", b"text")}, "data": {"purpose": "user_data"}}
EVIL = "https://evil.example"


def refused(answer: httpx.Response, code: str) -> bool:
    return answer.status_code == 403 and str(answer.json()["error"]["code"]) == code


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8000",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil",
        "internal.evil",
        "evil.internal",
        "evil_name:65535",
        "",
    ],
)
def test_a_name_that_is_not_ours_is_refused(client: httpx.Client, host: str) -> None:
    for method, path in (("GET", "/v1/tasks"), ("GET", "/metrics"), ("POST", "/v1/tasks"), ("DELETE", "/v1/tasks/x")):
        answer = client.request(method, path, headers={"host": host})

        assert refused(answer, "host_not_allowed"), path
        assert answer.headers["x-request-id"]
    assert client.get("/health", headers={"host": host}).json()["error_type"] == "Validation"


@pytest.mark.parametrize(
    "host",
    [
        "[::1].evil.com",
        "localhost:80@evil.com",
        "localhost/evil.com",
        "a b",
        "localhost:port",
        "[::1",
        "127.0.0.1:8000:1",
        "localhost:99999",
        ":80",
        "\xe9",
        "<x>",
        "a;b",
        "a%00",
        "a\x7f",
    ],
)
def test_what_is_no_host_is_no_request(client: httpx.Client, host: str) -> None:
    headers = {b"host": host.encode("latin-1")}
    assert client.get("/v1/tasks", headers=headers).json()["error"]["code"] == "invalid_http"


@pytest.mark.parametrize(
    "origin",
    [
        "localhost", "http://a b", "http://[::1].evil.com", "http://localhost@evil.com", "http://", "http://:80",
        "http://localhost:99999", "http://<x>", "http://a;b", "http://a%00",
    ],
)  # fmt: skip
def test_what_is_no_origin_is_no_request(client: httpx.Client, origin: str) -> None:
    assert client.get("/v1/tasks", headers={"origin": origin}).json()["error"]["code"] == "invalid_http"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9000",
        "127.0.0.1:1",
        "[::1]:8000",
        "a.localhost",
        "localhost.",
        "host.docker.internal:8000",
    ],
)
def test_names_of_this_machine_are_ours(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/models", headers={"host": host}).status_code == 200


def test_names_may_be_added(serve: Callable[..., ServedApp]) -> None:
    named, public = serve(allowed_hosts="embed.example.org,api"), serve(allowed_hosts="*")

    for host in ("embed.example.org", "Api:8000", "localhost"):
        assert named.client.get("/health/live", headers={"host": host}).status_code == 200
    assert refused(named.client.get("/health/live", headers={"host": "example.org"}), "host_not_allowed")
    assert public.client.get("/health/live", headers={"host": "example.org"}).status_code == 200


def test_behind_keys_or_in_public_any_name_will_do(serve: Callable[..., ServedApp]) -> None:
    elsewhere = {"host": "embed.example.org", "origin": EVIL, "sec-fetch-site": "cross-site"}
    public = serve(host="0.0.0.0", allow_unauthenticated=True)  # noqa: S104 - only a setting here
    keyed = serve(api_keys=f"alice:{sha256(b'secret').hexdigest()}")

    assert public.client.get("/v1/models", headers=elsewhere).status_code == 200
    assert keyed.client.post("/v1/tasks", headers=elsewhere).status_code == 401
    answer = keyed.client.post("/v1/files", headers={**elsewhere, "x-api-key": "secret"}, **FORM)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": EVIL, "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://127.0.0.1"},
    ],
)
def test_a_page_of_another_origin_changes_nothing(client: httpx.Client, headers: dict[str, str]) -> None:
    assert refused(client.post("/v1/files", headers=headers, **FORM), "origin_not_allowed")
    for method, path in (("POST", "/v1/tasks/x/cancel"), ("DELETE", "/v1/files/x"), ("POST", "/v1/embeddings")):
        assert refused(client.request(method, path, headers=headers), "origin_not_allowed")
    assert client.post("/embed", headers=headers).json()["error_type"] == "Validation"
    assert client.get("/v1/files", headers=headers).json()["data"] == []


def test_the_scheme_of_a_page_is_compared(client: httpx.Client) -> None:
    over_tls = {"origin": f"https://{client.base_url.netloc.decode()}"}

    assert refused(client.post("/v1/files", headers=over_tls, **FORM), "origin_not_allowed")
    assert client.post("/v1/files", headers={**over_tls, "x-forwarded-proto": "https"}, **FORM).status_code == 200


def test_programs_and_pages_of_ours_do(client: httpx.Client) -> None:
    own = f"http://{client.base_url.netloc.decode()}"
    for headers in ({}, {"origin": own}, {"origin": own, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert client.post("/v1/files", headers=headers, **FORM).status_code == 200


def test_named_origins_do(browser: httpx.Client, serve: Callable[..., ServedApp]) -> None:
    cross_site = {"sec-fetch-site": "cross-site"}
    any_page = serve(cors_origins="*").client

    assert browser.post("/v1/tasks", json={"input": "one"}, headers=cross_site).status_code == 202
    assert refused(browser.post("/v1/tasks", json={}, headers={**cross_site, "origin": OTHER}), "origin_not_allowed")
    assert any_page.post("/v1/tasks", json={"input": "one"}, headers={**cross_site, "origin": OTHER}).status_code == 202
