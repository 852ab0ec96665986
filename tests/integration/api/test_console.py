"""The pages /console and /docs: who gets their files, with which headers, and what they load."""

import gzip
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import product
from pathlib import Path

import httpx
import pytest

from api.pages import CONSOLE as STATIC
from tests.integration.api.served import ServedApp
from tests.processes import RedisServer
from tests.source_tree import CHECKOUT

MAX_GZIPPED_BYTES = 60_000
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
SWAGGER = CHECKOUT / "api/swagger_ui"
NO_FILES = ("nothing.js", "../families/console.py", "..%2f..%2fapp.py", "%2e%2e/VENDORED.md", "/etc/passwd", "vendor")


@pytest.fixture(scope="module")
def client(redis_server: RedisServer) -> Iterator[httpx.Client]:
    with redis_server.client() as redis_client:
        redis_client.flushall()  # API keys of the test before, in another module
    with ServedApp(redis_server.url) as app:
        yield app.client


def names() -> list[str]:
    return sorted(file.relative_to(STATIC).as_posix() for file in STATIC.rglob("*") if file.is_file())


def test_a_browser_gets_the_page_and_other_clients_what_they_had(client: httpx.Client) -> None:
    page = client.get("/console")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/", headers=BROWSER).content == page.content
    for accept in ("*/*", "application/json", ""):
        assert client.get("/", headers={"accept": accept}).json() == {"status": "live"}
    assert client.post("/", headers=BROWSER, json={"inputs": ""}).json()["error_type"] == "Empty"


def test_every_file_has_its_headers_and_is_sent_once(client: httpx.Client) -> None:
    for name in names():
        answer = client.get(f"/console/{name}")
        again = client.get(f"/console/{name}", headers={"if-none-match": answer.headers["etag"]})

        assert answer.content == (STATIC / name).read_bytes()
        assert (again.status_code, again.content) == (304, b"")
        for one in (answer, again):
            policy = one.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
            assert "unsafe" not in policy
            assert (one.headers["cache-control"], one.headers["etag"]) == ("no-cache", answer.headers["etag"])
    for path in NO_FILES:
        missing = client.get(f"/console/{path}")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "route_not_found")


def test_a_file_is_sent_whole_whatever_range_is_asked_for(client: httpx.Client) -> None:
    paths = ("/console", "/console/app.js", "/docs", "/docs/swagger-ui.css", "/")
    ranges = ("bytes=0-9", "bytes=0-1,5-6", "bytes=x-", "bytes=99999999-", "nonsense")
    for path, wanted in product(paths, ranges):
        whole = client.get(path, headers=BROWSER)
        answer = client.get(path, headers={**BROWSER, "range": wanted})
        assert (answer.status_code, answer.content) == (200, whole.content)
        assert answer.headers["accept-ranges"] == "none"


def imported(name: str) -> set[str]:
    """The scripts that a script needs before it runs."""
    found = re.findall(r'^(?:import|export) ?[^;"]*?from ?"([^"]+)"', (STATIC / name).read_text(), re.MULTILINE)
    assert all(one.startswith(".") for one in found), f"{name} imports {found}"
    return {((STATIC / name).parent / one).resolve().relative_to(STATIC).as_posix() for one in found}


def test_the_page_works_behind_a_prefix_and_loads_what_is_there() -> None:
    """All addresses are relative, and none leads to a file that does not exist or to a source map."""
    page = (STATIC / "index.html").read_text()
    for address in re.findall(r'(?:src|href)="(console/[^"]+)"', page):
        assert (STATIC / address.removeprefix("console/")).is_file(), address
    for name in names():
        assert "sourceMappingURL" not in (STATIC / name).read_text(), name
        assert imported(name) <= {*names()}, name

    # It names all scripts that its first screen needs: a browser would else find them import by import.
    needed, found = {"app.js"}, set[str]()
    while needed - found:
        name = (needed - found).pop()
        found.add(name)
        needed |= imported(name)
    assert set(re.findall(r'"(?:modulepreload|module)" (?:href|src)="console/([^"]+)"', page)) == needed


def test_nothing_becomes_markup() -> None:
    for file in STATIC.rglob("*.js"):
        if "vendor" not in file.parts:
            text = file.read_text()
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text), file.name


def test_everything_is_small() -> None:
    loaded = [file for file in STATIC.rglob("*") if file.suffix in {".html", ".css", ".js", ".svg"}]
    assert sum(len(gzip.compress(file.read_bytes(), 9)) for file in loaded) <= MAX_GZIPPED_BYTES


def test_the_vendored_files_are_those_that_are_described() -> None:
    def described(table: Path) -> dict[str, str]:
        return dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", table.read_text(), re.MULTILINE))

    vendor = [*(STATIC / "vendor").glob("*.js"), *(STATIC / "vendor").glob("*.css")]
    swagger = [*SWAGGER.glob("swagger-ui*"), SWAGGER / "LICENSE", SWAGGER / "NOTICE"]
    for folder, files in ((CHECKOUT / "api/console", vendor), (SWAGGER, swagger)):
        assert described(folder / "VENDORED.md") == {file.name: sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_reference_asks_nobody_else(client: httpx.Client) -> None:
    answer = client.get("/docs")
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]*)"', answer.text)

    assert answer.headers["content-type"].startswith("text/html")
    assert len(loaded) == 3
    for address in loaded:
        file = client.get(f"/{address}")
        assert file.headers["content-type"].partition(";")[0] in {"text/css", "text/javascript"}, address
    assert client.get("/docs/nothing.js").json()["error"]["code"] == "route_not_found"
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
    assert not re.search(r"<script>|<style>|https?:|\bon\w+=", answer.text), "nothing inline, nothing of another host"
    assert rules.pop("img-src") == "'self' data:"
    assert {name for name, value in rules.items() if value == "'self'"} == {"script-src", "style-src", "connect-src"}
    others = {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert {name for name, value in rules.items() if value == "'none'"} == others
