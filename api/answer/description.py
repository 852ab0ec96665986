"""What a route reads of a request and what it answers, as data in the words of OpenAPI.

The parts stand beside the code that reads or writes them; `api.families.route` puts them together for each route.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string"}
SECONDS: Schema = {"type": "integer", "minimum": 1}
SCHEMAS = "#/components/schemas/{model}"
"""Where references lead."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A header or a query parameter that a route reads. None is required.

    Attributes:
        place: where it stands.
        name: as the document spells it.
        schema: a text where there is none.
        empty_is_absent: whether an empty value counts as no value.
    """

    place: Literal["header", "query"]
    name: str
    description: str
    schema: Schema | None = None
    example: str | None = None
    empty_is_absent: bool = False

    def to_openapi(self) -> dict[str, Any]:
        """A parameter object."""
        return {
            "name": self.name,
            "in": self.place,
            "required": False,
            "schema": self.schema or TEXT,
            "description": self.description,
            **({} if self.example is None else {"example": self.example}),
            **({"allowEmptyValue": True} if self.empty_is_absent else {}),
        }


def header(name: str, description: str, schema: Schema | None = None, *, example: str | None = None) -> Parameter:
    """A header that a route reads."""
    return Parameter("header", name, description, schema, example)


def query(name: str, schema: Schema, description: str, *, empty_is_absent: bool = False) -> Parameter:
    """A query parameter that a route reads."""
    return Parameter("query", name, description, schema, empty_is_absent=empty_is_absent)


@dataclass(frozen=True, slots=True)
class ResponseHeader:
    """A header of an answer; a text where it has no schema. `required`: no such answer is without it."""

    name: str
    description: str | None
    schema: Schema | None = None
    required: bool = False

    def to_openapi(self) -> dict[str, Any]:
        """A header object."""
        described = {} if self.description is None else {"description": self.description}
        return {**described, "schema": self.schema or TEXT, **({"required": True} if self.required else {})}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a route.

    Attributes:
        model: of its JSON; None where it is not JSON.
        media_types: its forms other than JSON.
        headers: those that it has beside `x-request-id`.
    """

    status: int
    model: Any = None
    media_types: Sequence[str] = ()
    description: str | None = None
    headers: Sequence[ResponseHeader] = ()

    def to_openapi(self) -> dict[str, Any]:
        """An entry of FastAPI's `responses`."""
        return {
            **({} if self.model is None else {"model": self.model}),
            **({} if self.description is None else {"description": self.description}),
            **({"content": {media_type: {} for media_type in self.media_types}} if self.media_types else {}),
            **header_objects(self.headers),
        }


def header_objects(headers: Sequence[ResponseHeader]) -> dict[str, Any]:
    """The member `headers` of a response object; nothing where there are none."""
    return {"headers": {header.name: header.to_openapi() for header in headers}} if headers else {}


Body = Mapping[str, Schema]
"""The body of a request: its schema by media type."""


def json_body(kind: type[BaseModel]) -> Body:
    """A JSON body of this kind, in which `null` counts as absent."""
    schema = kind.model_json_schema(ref_template=SCHEMAS)
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        if name not in required and {"type": "null"} not in field.get("anyOf", ()):
            about = {key: field.pop(key) for key in ("title", "description", "default") if key in field}
            schema["properties"][name] = {"anyOf": [field, {"type": "null"}], **about}
    return {"application/json": schema}
