"""The OpenAPI document: FastAPI makes it of the routes. Errors stand there by range; docs/http.md has their codes."""

from functools import cached_property
from typing import Any

import orjson
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

from api.error_responses import MEDIA_TYPE
from api.schemas.answer_parts import path_here
from api.tei_errors import Word
from tasks.records.api_keys import Scope

_SCHEMAS = "#/components/schemas/"


class OpenAIError(BaseModel):
    """The error as OpenAI's clients read it."""

    message: str
    type: str
    param: str | None = Field(examples=["input[3]"])
    code: str = Field(examples=["empty_input"])


class Problem(BaseModel):
    """Every error: a problem document of RFC 9457 with OpenAI's member in it."""

    type: str = Field(examples=["urn:embedq:error:empty_input"])
    title: str
    status: int
    detail: str
    instance: str
    error: OpenAIError


class TEIError(BaseModel):
    """Every error on the routes of text-embeddings-inference."""

    error: str
    error_type: Word


_HEADERS = {
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
    "x-should-retry": {"description": "What the status does not tell.", "schema": {"enum": ["true", "false"]}},
}
_OF_401 = {"WWW-Authenticate": {"description": "Of a 401.", "schema": {"type": "string"}}}


def _ranges(media_type: str, model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    content = {media_type: {"schema": {"$ref": f"{_SCHEMAS}{model.__name__}"}}}
    return {
        "4XX": {"description": "The request cannot be used.", "content": content, "headers": _HEADERS | _OF_401},
        "5XX": {"description": "Try again, or look at the log.", "content": content, "headers": _HEADERS},
    }


RESPONSES = _ranges(MEDIA_TYPE, Problem)
"""The argument `responses` of the application."""
TEI_RESPONSES = _ranges("application/json", TEIError)
"""Of TEI's routes."""


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
                    operation["description"] += _scopes(operation)
                    for content in operation.get("requestBody", {}).get("content", {}).values():
                        if "title" in content["schema"]:
                            content["schema"] = _name(schemas, content["schema"])
            self.openapi_schema = document
        prefix = path_here("")
        return {**self.openapi_schema, "servers": [{"url": prefix}]} if prefix else self.openapi_schema

    @cached_property
    def _rendered(self) -> bytes:
        return orjson.dumps(self.openapi())

    def add_document(self) -> None:
        """Serves the document. FastAPI would make its 150 kB anew for each reader, however slowly they read."""

        async def read_document() -> Response:
            content = orjson.dumps(self.openapi()) if path_here("") else self._rendered
            return Response(content, media_type="application/json")

        self.add_api_route("/openapi.json", read_document, include_in_schema=False)


def _scopes(operation: dict[str, Any]) -> str:
    """What a key needs for a route: Swagger UI shows scopes of OAuth alone."""
    names = [f"`{name}`" for way in operation.get("security", ()) for name in way["key"]]
    return f"\n\nScope of the key: {' or '.join(names)}." if 0 < len(names) < len(Scope) else ""


def _name(schemas: dict[str, Any], schema: dict[str, Any]) -> dict[str, str]:
    """Puts a schema and those within it among the named ones; returns the reference."""
    schemas.update(schema.pop("$defs", {}))
    schemas[schema["title"]] = schema
    return {"$ref": f"{_SCHEMAS}{schema['title']}"}
