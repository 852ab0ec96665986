"""The pages /console and /docs: who gets their files, with which headers, and what they load."""

import gzip
import re
from hashlib import sha256
from itertools import product
from pathlib import Path

import httpx

from api.pages import CONSOLE as STATIC
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


def test_every_file_has_its_headers_and_is_sent_once_and_whole(client: httpx.Client) -> None:
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
    for path, wanted in product(("/console", "/console/app.js", "/docs"), ("bytes=0-9", "bytes=99999999-", "nonsense")):
        answer = client.get(path, headers={**BROWSER, "range": wanted})
        assert (answer.status_code, answer.content) == (200, client.get(path, headers=BROWSER).content)
        assert answer.headers["accept-ranges"] == "none"


def imported(name: str) -> set[str]:
    """The scripts that a script needs before it runs."""
    found = re.findall(r'^(?:import|export) ?[^;"]*?from ?"([^"]+)"', (STATIC / name).read_text(), re.MULTILINE)
    assert all(one.startswith(".") for one in found), f"{name} imports {found}"
    return {((STATIC / name).parent / one).resolve().relative_to(STATIC).as_posix() for one in found}


def test_the_page_works_behind_a_prefix_and_loads_what_is_there() -> None:
    """All addresses are relative, none leads to a file that does not exist or to a source map; no text is markup."""
    page = (STATIC / "index.html").read_text()
    for address in re.findall(r'(?:src|href)="(console/[^"]+)"', page):
        assert (STATIC / address.removeprefix("console/")).is_file(), address
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b"
    for name in NAMES:
        text = (STATIC / name).read_text()
        assert "sourceMappingURL" not in text, name
        assert imported(name) <= {*NAMES}, name
        assert "vendor" in name or not name.endswith(".js") or not re.search(markup, text), name

    # It names all scripts that its first screen needs: a browser would else find them import by import.
    needed, found = {"app.js"}, set[str]()
    while needed - found:
        name = (needed - found).pop()
        found.add(name)
        needed |= imported(name)
    assert set(re.findall(r'"(?:modulepreload|module)" (?:href|src)="console/([^"]+)"', page)) == needed


def test_the_files_are_small_and_those_of_others_are_as_described() -> None:
    def described(table: Path) -> dict[str, str]:
        return dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", table.read_text(), re.MULTILINE))

    vendor = [*(STATIC / "vendor").glob("*.js"), *(STATIC / "vendor").glob("*.css")]
    swagger = [*SWAGGER.glob("swagger-ui*"), SWAGGER / "LICENSE", SWAGGER / "NOTICE"]
    for folder, files in ((CHECKOUT / "api/console", vendor), (SWAGGER, swagger)):
        assert described(folder / "VENDORED.md") == {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
    loaded = [STATIC / name for name in NAMES if name.endswith((".html", ".css", ".js", ".svg"))]
    assert sum(len(gzip.compress(file.read_bytes(), 9)) for file in loaded) <= MAX_GZIPPED_BYTES


def test_the_reference_asks_nobody_else(client: httpx.Client) -> None:
    answer = client.get("/docs")
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]*)"', answer.text)
    assert answer.headers["content-type"].startswith("text/html")
    assert len(loaded) == 3
    for address in loaded:
        file = client.get(f"/{address}")
        assert file.headers["content-type"].partition(";")[0] in {"text/css", "text/javascript"}, address
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
    assert not re.search(r"<script>|<style>|https?:|\bon\w+=", answer.text), "nothing inline, nothing of another host"
    assert rules.pop("img-src") == "'self' data:"
    assert {name for name, value in rules.items() if value == "'self'"} == {"script-src", "style-src", "connect-src"}
    others = {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert {name for name, value in rules.items() if value == "'none'"} == others
