"""A route with its description: what it reads, what it answers and which errors it has stand once, beside its function.

FastAPI gets the description in its own form. `openapi.json`, the page at `/docs` and the table of routes in
`docs/http.md` are made from it, and tests call every route by it. The function of a route sees only those headers and
query parameters that its description names, so that none can be read and not be described.

FastAPI documents the routes and does not serve them: a route takes the request and returns the response itself.
FastAPI's own parameters would do the same for more: to resolve two declared headers took 48 us where a whole small
request took 31, this check included, and 3 of them are the check (least of 30 runs on two busy cores).
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope as RequestScope

from api.answer.description import Answer, Body, Parameter, header
from api.auth import known_key, require
from api.error_responses import RESPONSES, TEI_PATHS, TEI_RESPONSES
from api.request.idempotency import KEY_SCHEMA
from tasks import errors
from tasks.records.api_keys import Scope

# What a key needs for a route: one of these scopes.

Scopes = frozenset[Scope]
PUBLIC: Scopes = frozenset()
"""No key is needed, and none is looked at."""
ANY_KEY: Scopes = frozenset(Scope)
READING: Scopes = frozenset({Scope.READ})
TASK_READING: Scopes = frozenset({Scope.READ, Scope.ONLINE, Scope.BULK})
"""Whoever may make a task may read it, and so for the other kinds of things."""
TASK_MAKING: Scopes = frozenset({Scope.ONLINE, Scope.BULK})
BATCH_READING: Scopes = frozenset({Scope.READ, Scope.BULK})
BATCH_MAKING: Scopes = frozenset({Scope.BULK})
FILE_READING: Scopes = frozenset({Scope.READ, Scope.FILES, Scope.BULK})
"""Outputs of batches are files."""
FILE_MAKING: Scopes = frozenset({Scope.FILES})
INGESTION_READING: Scopes = frozenset({Scope.READ, Scope.INGEST})
INGESTION_MAKING: Scopes = frozenset({Scope.INGEST})
ONLINE_CALL: Scopes = frozenset({Scope.ONLINE})

# What several families have in common.

Errors = tuple[type[errors.EmbedqError], ...]

CALLER: Errors = (
    errors.Unauthenticated,
    errors.ScopeMissing,
    errors.RateLimited,
    errors.RedisUnavailable,
    errors.Overloaded,
)
"""Of every route that needs a scope; `describe` adds them."""
JSON_BODY: Errors = (
    *CALLER,
    errors.RequestError,
    errors.BodyTooLarge,
    errors.UnsupportedMediaType,
    errors.Overloaded,
)
TEXTS: Errors = (
    *JSON_BODY,
    errors.ModelNotFound,
    errors.BacklogFull,
    errors.KeyLimitReached,
    errors.AboveKeyLimit,
    errors.StorageFull,
)

IDEMPOTENCY_KEY = header(
    "Idempotency-Key", "Makes a repetition safe: the same key and body get the same object again.", KEY_SCHEMA
)
CLIENT_TIMEOUTS = (
    header("x-stainless-read-timeout", "Seconds that OpenAI's client for Python waits; the answer comes before."),
    header("x-stainless-timeout", "The same of OpenAI's client for Node."),
)


@dataclass(frozen=True, slots=True)
class Description:
    """What one route does, as data.

    Attributes:
        answers: its answers that are no errors; the first one is the usual one.
        errors: those that it can answer with beside the 500 of a defect.
        reads: headers and query parameters, beside those that every route may read.
        scopes: the caller's key needs one of them.
    """

    answers: Sequence[Answer]
    errors: Errors
    reads: Sequence[Parameter]
    body: Body | None
    scopes: Scopes

    def scope_names(self) -> list[str]:
        """The scopes in the order in which people read them."""
        return [scope.value for scope in Scope if scope in self.scopes]

    def to_fastapi(self, path: str) -> dict[str, Any]:
        """The arguments by which FastAPI describes a route with this path."""
        answers = {answer.status: answer.to_openapi() for answer in self.answers}
        extra: dict[str, Any] = {}
        if self.reads:
            extra["parameters"] = [parameter.to_openapi() for parameter in self.reads]
        if self.body is not None:
            content = {media_type: {"schema": schema} for media_type, schema in self.body.items()}
            extra["requestBody"] = {"required": True, "content": content}
        return {
            "status_code": self.answers[0].status,
            "response_class": Response if self.answers[0].model is None else JSONResponse,
            "responses": answers | (TEI_RESPONSES if path in TEI_PATHS else RESPONSES),
            "openapi_extra": extra | ({"security": [{"key": self.scope_names()}]} if self.scopes else {}),
        }


Function = Callable[..., Awaitable[Response]]
F = TypeVar("F", bound=Function)


class Family(APIRouter):
    """The routes of one subject. `bare`: they answer without `/v1` as well, as clients of OpenAI may be set up so."""

    def __init__(self, tag: str, *, bare: bool = False) -> None:
        super().__init__()
        self._tag = tag
        self._bare = bare

    def describe(
        self,
        method: str,
        path: str,
        *answers: Answer,
        scopes: Scopes,
        errors: Errors = (),
        reads: Sequence[Parameter] = (),
        body: Body | None = None,
        slash: bool = False,
    ) -> Callable[[F], F]:
        """Registers a function as a route. `slash`: it answers with a slash at the end of the path as well.

        `scopes`: the caller's key needs one of them; `PUBLIC`: there need be no key.
        """
        refusals = tuple(dict.fromkeys((*CALLER, *errors))) if scopes else errors
        description = Description(answers, refusals, reads, body, scopes)
        paths = [path, f"{path}/"] if slash else [path]
        if self._bare:
            paths += [path.removeprefix("/v1") for path in paths]

        def register(function: F) -> F:
            for alias in paths:
                self.routes.append(DescribedRoute(method, alias, function, description, self._tag, shown=alias == path))
            return function

        return register


class DirectRoute(APIRoute):
    """Calls its function with the request and the parts of the path that it names."""

    @property
    def function(self) -> Function:
        """What answers: called with the request and the parts of the path."""
        return cast("Function", self.endpoint)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Called by FastAPI once per route."""
        function = self.function
        names = tuple(self.param_convertors)

        async def handle(request: Request) -> Response:
            return await function(request, *(request.path_params[name] for name in names))

        return handle


class DescribedRoute(DirectRoute):
    """A route whose function sees what its description names. `shown`: in the OpenAPI document."""

    def __init__(
        self, method: str, path: str, function: Function, description: Description, tag: str, *, shown: bool
    ) -> None:
        self.described = description
        super().__init__(
            path,
            function,
            methods=[method],
            tags=[tag],
            include_in_schema=shown,
            **description.to_fastapi(path),
        )

    @property
    def function(self) -> Function:
        """What answers: called with the request and the parts of the path."""
        function, scopes = super().function, self.described.scopes
        read = {p.name.lower() for p in self.described.reads if p.place == "header"}
        headers = {name: name.encode("latin-1") for name in _READ_BY_ALL | read}
        parameters = frozenset(p.name for p in self.described.reads if p.place == "query")

        def answer(request: Request, *parts: str) -> Awaitable[Response]:
            described = _DescribedRequest(request, headers, parameters)
            if not scopes:
                return function(described, *parts)
            return _let_in(described, scopes, partial(function, described, *parts))

        return answer


async def _let_in(request: Request, scopes: Scopes, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Answers a caller whose key has one of the scopes, before anything of the body is read."""
    require(request, await known_key(request), scopes)
    return await answer()


_READ_BY_ALL = frozenset(
    {
        "accept",
        "accept-encoding",
        "api-key",
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "x-api-key",
    }
)
"""OpenAPI has other places for these than the parameters of a route: its body, its answers, its security scheme."""


class NotDescribed(Exception):
    """A route reads a header or a query parameter that its description does not name. A defect, so a 500."""


class _DescribedRequest(Request):
    """A request of which only what is described can be read."""

    def __init__(self, request: Request, headers: Mapping[str, bytes], parameters: frozenset[str]) -> None:
        super().__init__(request.scope, request.receive)
        self._described = headers
        self._parameters = parameters

    @property
    def headers(self) -> Headers:
        if not hasattr(self, "_headers"):
            self._headers = _DescribedHeaders(self.scope, self._described)
        return self._headers

    @property
    def query_params(self) -> QueryParams:
        if not hasattr(self, "_query_params"):
            parameters = _DescribedQuery(self.scope["query_string"])
            parameters.names = self._parameters
            self._query_params = parameters
        return self._query_params


class _DescribedHeaders(Headers):
    """By name, in a table: what is absent, as most of them are, costs a look and no search and no exception.

    `names`: those that are described, in small letters, and as they stand in a request.
    """

    def __init__(self, scope: RequestScope, names: Mapping[str, bytes]) -> None:
        super().__init__(scope=scope)
        self._names = names
        self._first = dict(reversed(self._list))  # of several, the first

    def _find(self, key: str) -> bytes | None:
        name = self._names.get(key) or self._names.get(key.lower())
        if name is None:
            raise NotDescribed(f"{key} is read and not described")
        return self._first.get(name)

    def __getitem__(self, key: str) -> str:
        value = self._find(key)
        if value is None:
            raise KeyError(key)
        return value.decode("latin-1")

    def __contains__(self, key: object) -> bool:
        return self._find(str(key)) is not None

    def get(self, key: str, default: Any = None) -> Any:
        """The first value."""
        value = self._find(key)
        return default if value is None else value.decode("latin-1")

    def getlist(self, key: str) -> list[str]:
        """All values."""
        return [] if self._find(key) is None else super().getlist(key)


class _DescribedQuery(QueryParams):
    """`names`: those that are described; set before anything is read."""

    names: frozenset[str]

    def _require(self, key: object) -> None:
        if str(key).lower() not in self.names:
            raise NotDescribed(f"{key} is read and not described")

    def __getitem__(self, key: str) -> str:
        self._require(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._require(key)
        return super().__contains__(key)

    def getlist(self, key: Any) -> list[str]:
        """All values."""
        self._require(key)
        return super().getlist(key)
