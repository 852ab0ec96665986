"""The files of the console over HTTP: who gets them, with which headers, and that there are no others."""

import gzip
import re
from collections.abc import Iterator
from hashlib import sha256

import httpx
import pytest

from api.pages import CONSOLE as STATIC
from tests.integration.api.served import ServedApp
from tests.processes import RedisServer
from tests.source_tree import CHECKOUT

MAX_GZIPPED_BYTES = 60_000
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
VENDORED = CHECKOUT / "api/console/VENDORED.md"


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


@pytest.mark.parametrize("name", names())
def test_every_file_has_its_headers_and_is_sent_once(client: httpx.Client, name: str) -> None:
    answer = client.get(f"/console/{name}")
    again = client.get(f"/console/{name}", headers={"if-none-match": answer.headers["etag"]})

    assert answer.content == (STATIC / name).read_bytes()
    assert (again.status_code, again.content) == (304, b"")
    for one in (answer, again):
        policy = one.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert one.headers["cache-control"] == "no-cache"
        assert one.headers["x-content-type-options"] == "nosniff"
        assert one.headers["referrer-policy"] == "no-referrer"
        assert one.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize("path", ["/console", "/console/app.js", "/docs", "/docs/swagger-ui.css", "/"])
@pytest.mark.parametrize("wanted", ["bytes=0-9", "bytes=0-1,5-6", "bytes=x-", "bytes=99999999-", "nonsense"])
def test_a_file_is_sent_whole_whatever_range_is_asked_for(client: httpx.Client, path: str, wanted: str) -> None:
    whole = client.get(path, headers=BROWSER)
    answer = client.get(path, headers={**BROWSER, "range": wanted})

    assert (answer.status_code, answer.content) == (200, whole.content)
    assert answer.headers["accept-ranges"] == "none"


@pytest.mark.parametrize(
    "path",
    ["nothing.js", "../families/console.py", "..%2f..%2fapp.py", "%2e%2e/VENDORED.md", "/etc/passwd", "vendor"],
)
def test_there_are_no_other_files(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/console/{path}")

    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "route_not_found"


def test_the_page_works_behind_a_prefix_and_loads_what_is_there() -> None:
    """All addresses are relative, and none leads to a file that does not exist or to a source map."""
    page = (STATIC / "index.html").read_text()
    for address in re.findall(r'(?:src|href)="(console/[^"]+)"', page):
        assert (STATIC / address.removeprefix("console/")).is_file(), address
    for name in names():
        text = (STATIC / name).read_text()
        assert "sourceMappingURL" not in text, name
        for found in re.findall(r'^(?:import|export) [^;]*?from ?"([^"]+)"', text, re.MULTILINE):
            assert found.startswith("."), f"{name} imports {found}"
            assert ((STATIC / name).parent / found).is_file(), f"{name} imports {found}"


def imported(name: str) -> set[str]:
    """The scripts that a script needs before it runs."""
    names = re.findall(r'^(?:import|export) ?[^;"]*?from ?"([^"]+)"', (STATIC / name).read_text(), re.MULTILINE)
    return {((STATIC / name).parent / found).resolve().relative_to(STATIC).as_posix() for found in names}


def test_the_page_names_all_scripts_that_its_first_screen_needs() -> None:
    """A browser would else find them one after the other, import by import."""
    needed, found = {"app.js"}, set[str]()
    while needed - found:
        name = (needed - found).pop()
        found.add(name)
        needed |= imported(name)
    page = (STATIC / "index.html").read_text()
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
    described = dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", VENDORED.read_text(), re.MULTILINE))
    files = {*(STATIC / "vendor").glob("*.js"), *(STATIC / "vendor").glob("*.css")}
    assert described == {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
