"""The OpenAPI document as one page of HTML: no script, no frame, no other host, so it also works without a network.

Packages that carry Swagger UI were looked at: megabytes of script, and a page that asks other hosts unless told not to.
What a reader of this API needs is a list with links, which every browser shows and every screen reader reads.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

_Json = Mapping[str, Any]

STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:auto;padding:1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{overflow:auto;padding:.6rem;border:1px solid #8886}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884}
summary{cursor:pointer;padding:.4rem 0}
details{border-bottom:1px solid #8884}
details>:not(summary){margin-left:1rem}
"""

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)
"""Content-Security-Policy of the page: its own style and nothing else."""


def page(document: _Json) -> str:
    """The page for an OpenAPI document whose references all point to its `components/schemas`."""
    title = escape(document["info"]["title"])
    schemas = document.get("components", {}).get("schemas", {})
    operations = [(*at, op) for at in _addresses(document) if (op := document["paths"][at[1]][at[0]])]
    families = dict.fromkeys(_family(operation) for _, _, operation in operations)
    return "".join(
        (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: HTTP reference</title>',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<style>{STYLE}</style></head><body><main><h1>{title}</h1>",
            f"<p>{escape(document['info'].get('summary', ''))} ",
            'This page is made from <a href="openapi.json">openapi.json</a>.</p>',
            *(
                f"<h2>{escape(family)}</h2>" + "".join(_operation(*op) for op in operations if _family(op[2]) == family)
                for family in families
            ),
            "<h2>Schemas</h2>",
            *(_schema(name, schema) for name, schema in sorted(schemas.items())),
            "</main></body></html>",
        )
    )


def _addresses(document: _Json) -> list[tuple[str, str]]:
    return [(method, path) for path, methods in document["paths"].items() for method in methods]


def _family(operation: _Json) -> str:
    return str(next(iter(operation.get("tags", ())), "other"))


def _operation(method: str, path: str, operation: _Json) -> str:
    head = (
        f"<summary><code><b>{method.upper()}</b> {escape(path)}</code> {escape(operation.get('summary', ''))}</summary>"
    )
    about = "".join(f"<p>{escape(part)}</p>" for part in operation.get("description", "").split("\n\n"))
    return f"<details>{head}{about}{_parameters(operation)}{_body(operation)}{_responses(operation)}</details>"


def _parameters(operation: _Json) -> str:
    rows = [
        (f"{p['name']} ({p['in']})", _type(p.get("schema", {})), p.get("required", False), p.get("description", ""))
        for p in operation.get("parameters", ())
    ]
    return _table("Parameters", rows)


def _body(operation: _Json) -> str:
    parts = []
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content.get("schema", {})
        parts.append(f"<h3>Body: <code>{escape(media_type)}</code></h3><p>{_type(schema)}</p>{_fields(schema)}")
        parts.append(_examples([*content.get("examples", {}).values()]))
    return "".join(parts)


def _responses(operation: _Json) -> str:
    rows = []
    for status, response in operation.get("responses", {}).items():
        kinds = [
            f"<code>{escape(media_type)}</code> {_type(content['schema']) if 'schema' in content else ''}"
            for media_type, content in response.get("content", {}).items()
        ]
        headers = ", ".join(response.get("headers", {}))
        rows.append(
            (status, "<br>".join(kinds), None, response.get("description", "") + (f" ({headers})" if headers else ""))
        )
    return _table("Answers", rows)


def _schema(name: str, schema: _Json) -> str:
    about = escape(schema.get("description", ""))
    return (
        f'<details id="{escape(name)}" open><summary><code><b>{escape(name)}</b></code></summary>'
        f"<p>{about}</p>{_fields(schema)}{_examples(schema.get('examples', ()))}</details>"
    )


def _fields(schema: _Json) -> str:
    required = schema.get("required", ())
    return _table(
        "Fields",
        [
            (name, _type(field), name in required, field.get("description", ""))
            for name, field in schema.get("properties", {}).items()
        ],
    )


def _examples(examples: Iterable[Any]) -> str:
    return "".join(f"<pre>{escape(json.dumps(example, indent=1, ensure_ascii=False))}</pre>" for example in examples)


def _table(caption: str, rows: Iterable[tuple[str, str, bool | None, str]]) -> str:
    """Rows are name, HTML of the type, whether required (None: no matter), description."""
    lines = [
        f'<tr><th scope="row"><code>{escape(name)}</code>{" required" if required else ""}</th>'
        f"<td>{kind}</td><td>{escape(about)}</td></tr>"
        for name, kind, required, about in rows
    ]
    return f"<h3>{caption}</h3><table>{''.join(lines)}</table>" if lines else ""


def _type(schema: _Json) -> str:
    """HTML: what a value may be, in words, with links to the schemas of this page."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(_type(choice) for choice in schema[union])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"<code>{escape(json.dumps(v))}</code>" for v in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}{_limits(schema)}"
    return f"{escape(str(schema.get('type', 'anything')))}{_limits(schema)}"


def _limits(schema: _Json) -> str:
    named = (
        ("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"), ("minLength", "min. length"),
        ("maxLength", "max. length"), ("minItems", "min. items"), ("maxItems", "max. items"), ("default", "default"),
    )  # fmt: skip
    limits = [f"{word} {escape(json.dumps(schema[key]))}" for key, word in named if key in schema]
    return f" ({', '.join(limits)})" if limits else ""
