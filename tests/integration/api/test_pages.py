"""Web pages: the console and the reference that we serve, and what pages of other origins may do and read."""

import gzip
import re
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import redis

from api.app import READABLE
from api.pages import CONSOLE as STATIC
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, KEYS, Serve, code_of
from tests.source_tree import CHECKOUT

MAX_GZIPPED_BYTES = 60_000
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
SWAGGER = CHECKOUT / "api/swagger_ui"
NO_FILES = ("nothing.js", "../families/console.py", "..%2f..%2fapp.py", "%2e%2e/VENDORED.md", "/etc/passwd", "vendor")
NAMES = sorted(file.relative_to(STATIC).as_posix() for file in STATIC.rglob("*") if file.is_file())


def test_a_browser_gets_the_page_and_other_clients_what_they_had(client: httpx.Client) -> None:
    page = client.get("/console")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/", headers=BROWSER).content == page.content
    for accept in ("*/*", "application/json", ""):
        assert client.get("/", headers={"accept": accept}).json() == {"status": "live"}
    assert client.post("/", headers=BROWSER, json={"inputs": ""}).json()["error_type"] == "Empty"


def test_every_file_has_its_headers_and_is_sent_once(client: httpx.Client) -> None:
    for name in NAMES:
        answer = client.get(f"/console/{name}")
        again = client.get(f"/console/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert answer.content == (STATIC / name).read_bytes()
        assert (again.status_code, again.content) == (304, b"")
        for one in (answer, again):
            policy = one.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
            assert "unsafe" not in policy
            assert (one.headers["cache-control"], one.headers["etag"]) == ("no-cache", answer.headers["etag"])
    for path in (*(f"/console/{name}" for name in NO_FILES), "/docs/nothing.js"):
        assert client.get(path).json()["error"]["code"] == "route_not_found", path
    assert client.get("/console", headers={**BROWSER, "range": "bytes=0-9"}).headers["accept-ranges"] == "none"
    reference = client.get("/docs")
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]*)"', reference.text)
    assert len(loaded) == 3
    assert {client.get(f"/{address}").headers["content-type"][:8] for address in loaded} == {"text/css", "text/jav"}
    assert not re.search(r"<script>|<style>|https?:|\bon\w+=", reference.text), "nothing inline or of another host"
    assert "default-src 'none'; script-src 'self'" in reference.headers["content-security-policy"]


def test_the_page_works_behind_a_prefix_and_loads_what_is_there() -> None:
    """All addresses are relative, none leads to a file that does not exist or to a source map; no text is markup."""
    page = (STATIC / "index.html").read_text()
    for address in re.findall(r'(?:src|href)="(console/[^"]+)"', page):
        assert (STATIC / address.removeprefix("console/")).is_file(), address
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b"
    for name in NAMES:
        text = (STATIC / name).read_text()
        assert "sourceMappingURL" not in text, name
        imported = re.findall(r'^(?:import|export) ?[^;"]*?from ?"([^"]+)"', text, re.MULTILINE)
        assert all(one.startswith(".") and ((STATIC / name).parent / one).is_file() for one in imported), name
        assert "vendor" in name or not name.endswith(".js") or not re.search(markup, text), name


def test_the_files_are_small_and_those_of_others_are_as_described() -> None:
    def described(table: Path) -> dict[str, str]:
        return dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", table.read_text(), re.MULTILINE))

    vendor = [*(STATIC / "vendor").glob("*.js"), *(STATIC / "vendor").glob("*.css")]
    swagger = [*SWAGGER.glob("swagger-ui*"), SWAGGER / "LICENSE", SWAGGER / "NOTICE"]
    for folder, files in ((CHECKOUT / "api/console", vendor), (SWAGGER, swagger)):
        assert described(folder / "VENDORED.md") == {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
    loaded = [STATIC / name for name in NAMES if name.endswith((".html", ".css", ".js", ".svg"))]
    assert sum(len(gzip.compress(file.read_bytes(), 9)) for file in loaded) <= MAX_GZIPPED_BYTES


# ---- pages of other origins ------------------------------------------------------------------------------------------

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


def test_a_page_may_ask_call_and_read(worker: LedgerWorker, serve: Serve, redis_client: redis.Redis) -> None:
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


def test_a_name_that_is_not_ours_is_refused(client: httpx.Client, serve: Serve) -> None:
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
