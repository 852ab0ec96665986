"""What the three calls with texts ask for, by hand: the key, the body, the caller's patience and connection.

`POST /v1/embeddings`, `/embed` and `/v1/tasks` take the request, where other routes declare what they ask for. A small
query took 500 us of processor time in the app with FastAPI's dependencies, and takes 210 without them (its wait apart).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any, cast

from fastapi import Request
from pydantic import BaseModel

from api.auth import known_key, require_scope, require_still_known
from api.dependencies import json_body
from api.idempotency import ABOUT, HEADER, KEY_SCHEMA, checked_key
from api.load_limits import Held, InFlight, read_body
from api.services.embeddings import TextsCall
from api.waiting.subscription import until_gone
from api.waiting.wait_for_vectors import ANNOUNCED, patience_s
from tasks.records.api_keys import Scope


def _header(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


_PATIENCE = [_header(name, description, {"type": "string"}) for name, description in ANNOUNCED.items()]
"""For the document: the headers that `patience_s` reads."""
IDEMPOTENCY = [_header(HEADER, ABOUT, KEY_SCHEMA)]
"""Likewise of `idempotency_key`."""


def idempotency_key(request: Request) -> str | None:
    """The `Idempotency-Key` of a request. Raises `Invalid` if it is none that can be known again."""
    return checked_key(request.headers.get(HEADER))


@asynccontextmanager
async def texts_call(request: Request, *scopes: Scope) -> AsyncIterator[TextsCall]:
    """The call of a key with one of these scopes, read behind the key, of one that the server can take in.

    Raises:
        Unauthenticated, Forbidden, TooMany: as the dependencies of `api.auth` do, before and after the body is read.
        Overloaded: too much is under way here.
        EmbedqError, CallerGone: as `read_body` does.
    """
    key = await known_key(request)
    require_scope(key, scopes)
    parts = request.app.state
    await cast("InFlight", parts.in_flight).require_room(key.owner)
    with closing(Held(parts.bodies, key.owner)) as held:
        body = await read_body(request, parts.settings.max_body_bytes, held)
        require_still_known(request, key)
        answer = Held(parts.answers, key.owner)
        gone = partial(until_gone, request.receive)
        try:
            yield TextsCall(key, body, patience_s(request.headers), gone, answer)
        except BaseException:
            answer.close()
            raise


def documented(kind: type[BaseModel], *scopes: str, headers: Sequence[Mapping[str, Any]] = _PATIENCE) -> dict[str, Any]:
    """`openapi_extra` of such a route: its body, its scopes and its headers."""
    return json_body(kind) | {"parameters": [*headers], "security": [{"key": [*scopes]}]}
