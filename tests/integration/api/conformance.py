"""Holds answers against the OpenAPI document: a status, a form or a header that it does not know fails."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx
import jsonschema_rs

from api.app import READABLE

PLAIN = {
    "allow", "cache-control", "connection", "content-encoding", "content-length", "content-security-policy",
    "content-type",
    "cross-origin-opener-policy", "cross-origin-resource-policy", "date", "last-modified", "referrer-policy", "server",
    "transfer-encoding", "vary", "x-content-type-options",
}  # fmt: skip
"""Headers that belong to HTTP, to browsers and to proxies rather than to this service."""

ONCE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'none'",
    "cache-control": "",
}
"""Headers of every answer, each once, and what their values contain."""

_SMALL_BYTES = 65_536
"""Larger answers are vectors: their schema is looked at where they are few."""
_WITH_SLASHES = ("model_id", "path")
"""Parts of paths that may have slashes. Of other parts that is not so, and the document cannot tell them apart."""


@dataclass(frozen=True)
class Operation:
    """One method of one path, as the document describes it."""

    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"

    @property
    def scopes(self) -> set[str]:
        """The caller's key needs one of these; none: no key is needed."""
        return {scope for way in self.described.get("security", ()) for scopes in way.values() for scope in scopes}

    @property
    def parameters(self) -> Sequence[Mapping[str, Any]]:
        """The headers and query parameters that it reads."""
        return [one for one in self.described.get("parameters", ()) if one["in"] in {"header", "query"}]

    @property
    def headers(self) -> set[str]:
        """The names of the headers that it reads, in small letters."""
        return {one["name"].lower() for one in self.parameters if one["in"] == "header"}

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Of the paths that it answers."""
        parts = re.split(r"\{(\w+)\}", self.path)
        parts[1::2] = [".+" if name in _WITH_SLASHES else "[^/]+" for name in parts[1::2]]
        parts[0::2] = [re.escape(literal) for literal in parts[0::2]]
        return re.compile("".join(parts))

    def response(self, status: int) -> Mapping[str, Any] | None:
        """How an answer with this status is described: by itself, or by the range of errors."""
        responses: Mapping[str, Mapping[str, Any]] = self.described["responses"]
        return responses.get(str(status), responses.get(f"{status // 100}XX"))


def operations(document: Mapping[str, Any]) -> list[Operation]:
    """All of them, in the order of the document."""
    return [
        Operation(method.upper(), path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    ]


def standard_path(path: str) -> str:
    """A path as the document has it."""
    path = "/" + path.strip("/")
    return f"/v1{path}" if re.match("/(embeddings|models|files|batches)(/|$)", path) else path


@dataclass
class Conformance:
    """Checks answers against a document and remembers which described answers and headers came.

    Attributes:
        seen: method, path, status and name of a header; "" stands for the answer itself.
    """

    document: Mapping[str, Any]
    seen: set[tuple[str, str, int, str]] = field(default_factory=set)
    _validators: dict[str, jsonschema_rs.Validator] = field(default_factory=dict)

    @cached_property
    def operations(self) -> Sequence[Operation]:
        """Those of the document; of two that fit a path the one with fewer parts that vary comes first."""
        return sorted(operations(self.document), key=lambda one: one.path.count("{"))

    def operation_of(self, request: httpx.Request) -> Operation | None:
        """What answers a request, if it is described."""
        method, path = "GET" if request.method == "HEAD" else request.method, standard_path(request.url.path)
        same = (one for one in self.operations if one.method == method)
        return next((one for one in same if one.pattern.fullmatch(path)), None)

    def check(self, answer: httpx.Response) -> None:
        """Fails unless status, media type, headers and, of small JSON, the body of the answer are as described.

        Answers of every route, also of none, must have the headers that protect browsers.
        """
        for name, value in ONCE.items():
            (only,) = answer.headers.get_list(name)
            assert value in only, f"{answer.request.method} {answer.request.url.path}: {name}: {only}"
        present = {name for name in answer.headers if name not in PLAIN and not name.startswith("access-control-")}
        assert present <= {*READABLE}, f"{answer.request.url.path}: {present - {*READABLE}} is no header of ours"
        operation = self.operation_of(answer.request)
        if operation is None:
            return
        where = f"{operation.name}: {answer.status_code}"
        response = operation.response(answer.status_code)
        assert response is not None, f"{where} is not described"
        required = {name.lower() for name, header in response.get("headers", {}).items() if header.get("required")}
        assert required <= present, f"{where} is without {required - present}"
        self._check_body(answer, response.get("content", {}), where)
        self.seen |= {(operation.method, operation.path, answer.status_code, name) for name in ("", *present)}

    def _check_body(self, answer: httpx.Response, content: Mapping[str, Any], where: str) -> None:
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        assert media_type in content or not (media_type or content), f"{where} is {media_type or 'nothing'}"
        schema = content.get(media_type, {}).get("schema")
        small = 0 < int(answer.headers.get("content-length", 0)) <= _SMALL_BYTES
        if not schema or not small or not media_type.endswith("json") or answer.request.method == "HEAD":
            return
        reference = str(schema)
        if reference not in self._validators:
            self._validators[reference] = jsonschema_rs.validator_for(
                {**schema, "components": self.document["components"]}
            )
        answer.read()
        error = next(self._validators[reference].iter_errors(answer.json()), None)
        assert error is None, f"{where}: {error}"
