"""The OpenAPI document, which FastAPI makes of the routes, and a page that shows it.

The page is Swagger UI as its authors build it (`api/swagger_ui/`, see VENDORED.md there), so it needs no network.
"""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.error_responses import Problem, TEIError
from api.schemas.answer_parts import path_here
from api.whole_files import WholeFile, WholeFiles

_SCHEMAS = "#/components/schemas/"


class DocumentedApp(FastAPI):
    """FastAPI, whose document also has the schemas that routes name by reference: errors, and bodies read by hand."""

    def openapi(self) -> dict[str, Any]:
        """The document, made once: that takes some 60 ms. Behind a proxy with a prefix it names that."""
        if self.openapi_schema is None:
            document = get_openapi(title=self.title, version=self.version, summary=self.summary, routes=self.routes)
            schemas = document["components"]["schemas"]
            for kind in (Problem, TEIError):
                _name(schemas, kind.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}"))
            for methods in document["paths"].values():
                for operation in methods.values():
                    for content in operation.get("requestBody", {}).get("content", {}).values():
                        if "title" in content["schema"]:
                            content["schema"] = _name(schemas, content["schema"])
            self.openapi_schema = document
        prefix = path_here("")
        return {**self.openapi_schema, "servers": [{"url": prefix}]} if prefix else self.openapi_schema


def _name(schemas: dict[str, Any], schema: dict[str, Any]) -> dict[str, str]:
    """Puts a schema and those within it among the named ones; returns the reference."""
    schemas.update(schema.pop("$defs", {}))
    schemas[schema["title"]] = schema
    return {"$ref": f"{_SCHEMAS}{schema['title']}"}


# The page.

_FILES = Path(__file__).parent / "swagger_ui"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing of another host, no frame around the page."""


def add_page(app: FastAPI) -> None:
    """Serves the page at `/docs`, and what it loads below that. It is open, also where API keys are needed."""
    app.add_api_route("/docs", _read_docs, include_in_schema=False)
    app.mount("/docs", WholeFiles(directory=_FILES))


async def _read_docs() -> WholeFile:
    return WholeFile(_FILES / "page.html", headers={"content-security-policy": _POLICY, "cache-control": "no-cache"})
