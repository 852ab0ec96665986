"""The page at /docs: everything in it is served here, and it says what the document says."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import httpx

ASKS = {"src", "srcset", "href", "action", "data", "poster", "background", "formaction", "ping", "style"}
"""Attributes by which a page makes a browser ask for something."""


class Found(HTMLParser):
    """Collects what matters of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.asks: set[tuple[str, str]] = set()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.asks |= {(name, value or "") for name, value in attrs if name in ASKS}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_asks_nobody_else(client: httpx.Client) -> None:
    answer = client.get("/docs")
    found = Found(answer.text)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?:|//\w|url\(|@import", answer.text)
    assert not found.tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    outside = {value for _, value in found.asks if not value.startswith("#")}
    assert outside == {"openapi.json"}
    assert client.get("/openapi.json").status_code == 200


def test_a_browser_is_told_to_ask_nobody_else(client: httpx.Client) -> None:
    answer = client.get("/docs")
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert rules.pop("style-src") == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "base-uri", "form-action", "frame-ancestors"}
    assert set(rules.values()) == {"'none'"}


def test_every_link_leads_somewhere_and_every_tag_is_closed(client: httpx.Client) -> None:
    found = Found(client.get("/docs").text)
    inside = {value[1:] for _, value in found.asks if value.startswith("#")}

    assert inside
    assert inside <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert found.open == []


def test_every_route_and_every_schema_is_there(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    page = client.get("/docs").text

    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<b>{method.upper()}</b> {path}<" in page
    assert set(document["components"]["schemas"]) == set(Found(page).ids)
