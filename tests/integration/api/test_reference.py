"""The page at /docs: everything that it loads is served here, and a browser is told to ask nobody else."""

import re
from hashlib import sha256

import httpx

from tests.source_tree import CHECKOUT

FOLDER = CHECKOUT / "api" / "swagger_ui"


def test_the_page_asks_nobody_else(client: httpx.Client) -> None:
    answer = client.get("/docs")
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]*)"', answer.text)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert len(loaded) == 3
    for address in loaded:
        file = client.get(f"/{address}")
        assert file.status_code == 200, address
        assert file.headers["content-type"].partition(";")[0] in {"text/css", "text/javascript"}, address
    assert client.get("/openapi.json").status_code == 200
    assert client.get("/docs/nothing.js").json()["error"]["code"] == "route_not_found"


def test_a_browser_is_told_to_ask_nobody_else(client: httpx.Client) -> None:
    answer = client.get("/docs")
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))

    assert not re.search(r"<script>|<style>|https?:|\bon\w+=", answer.text), "nothing inline, nothing of another host"
    assert rules.pop("img-src") == "'self' data:"
    assert {name for name, value in rules.items() if value == "'self'"} == {"script-src", "style-src", "connect-src"}
    others = {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert {name for name, value in rules.items() if value == "'none'"} == others


def test_the_vendored_files_are_those_that_are_described() -> None:
    table = (FOLDER / "VENDORED.md").read_text()
    described = dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", table, re.MULTILINE))
    files = [*FOLDER.glob("swagger-ui*"), FOLDER / "LICENSE", FOLDER / "NOTICE"]
    assert described == {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
