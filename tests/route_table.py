"""Writes the table of routes in `docs/http.md`, from their descriptions: `python -m tests.route_table`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from api.app import create_app
from tasks.records.api_keys import Scope
from worker_config.settings import load_settings

_PAGE = Path("docs/http.md")
_TABLE = re.compile(r"(<!-- routes: .*? -->\n).*?(<!-- end of routes -->\n)", re.DOTALL)


def with_table(page: str, document: Mapping[str, Any]) -> str:
    """The page with the table of this OpenAPI document between its two marks."""
    table = "".join(f"{row}\n" for row in _rows(document, re.findall(r"^## (.+)$", page, re.MULTILINE)))
    return _TABLE.sub(lambda marks: marks[1] + table + marks[2], page)


def _rows(document: Mapping[str, Any], headings: list[str]) -> Iterator[str]:
    yield "| route | does | scope of the key | headers that it reads |"
    yield "|---|---|---|---|"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            does = re.split(r"[.;] ", operation["description"])[0].rstrip(".")
            read = [f"`{one['name']}`" for one in operation.get("parameters", ()) if one["in"] == "header"]
            link, does = _link(name, operation["tags"][0], headings), f"{does[0].lower()}{does[1:]}"
            yield f"| {link} | {does} | {_scopes(operation)} | {', '.join(read)} |"


def _scopes(operation: Mapping[str, Any]) -> str:
    """What a key needs for a route, one of several; `any` if every key does; nothing where no key is needed."""
    scopes = [scope for way in operation.get("security", ()) for scope in way["key"]]
    return "any" if len(scopes) == len(Scope) else ", ".join(f"`{scope}`" for scope in scopes)


def _link(name: str, tag: str, headings: list[str]) -> str:
    """The route, with a link to the section about it or about its family."""
    section = next((one for one in headings if one == name or one.lower().startswith(tag)), None)
    if section is None:
        return f"`{name}`"
    anchor = re.sub(r"[^\w\- ]", "", section.lower()).replace(" ", "-")  # as GitHub makes it
    return f"[`{name}`](#{anchor})"


if __name__ == "__main__":
    _PAGE.write_text(with_table(_PAGE.read_text(encoding="utf-8"), create_app(load_settings()).openapi()))
