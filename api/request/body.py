"""Reading a request body: bounded, JSON, and precise about what is wrong with it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request

from api.error_responses import CallerGone
from api.request.memory_budget import SMALL_BYTES, Budget
from api.request.offload import offload
from tasks.errors import (
    BodyTooComplex,
    BodyTooLarge,
    EmbedqError,
    InvalidJSON,
    InvalidType,
    InvalidUnicode,
    UnsupportedMediaType,
)
from tasks.wire.json_limits import has_more_parts

_SURROGATE_SEARCH_BYTES = 2**20
"""Above this a lone surrogate is reported by line and column only: finding its field holds the interpreter lock."""
_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Bodies:
    """Reads the JSON bodies of one process.

    Attributes:
        max_bytes: of one body.
        max_lists: lists, objects and fields in one body.
        budget: of all bodies together.
    """

    max_bytes: int
    max_lists: int
    budget: Budget

    async def read(self, request: Request) -> bytes:
        """The whole body, fit to be parsed. It counts against the budget as long as the request lasts.

        Raises:
            BodyTooComplex: parsing it would take seconds, and many times its size.
            Overloaded: too many large bodies are here already.
            EmbedqError: as `read_body` does.
        """
        body = await read_body(request, self.max_bytes, lambda size: self.budget.take(request.scope, size))
        if len(body) > self.max_lists and await offload(len(body), has_more_parts, body, self.max_lists):
            raise BodyTooComplex(
                f"The body holds more than {self.max_lists:,} lists, objects and fields (EMBEDQ_MAX_BODY_LISTS). "
                f"Send fewer per request."
            )
        return body


async def read_body(request: Request, max_bytes: int, take: Callable[[int], None] = lambda _size_bytes: None) -> bytes:
    """The whole body of a request that says it is JSON.

    `take` is called with the size of what has come, as soon as that is not small, and with what comes then.

    Raises:
        UnsupportedMediaType: it says otherwise, or is compressed. A missing type counts: a web page could send such a
            request unasked.
        BodyTooLarge: it is longer than `max_bytes`; what is over the limit is never kept.
        CallerGone: the client closed the connection first.
    """
    _require_json(request.headers.get("content-type", ""))
    _require_plain(request.headers.get("content-encoding", ""))
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = taken = 0
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise CallerGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if size > SMALL_BYTES:
            take(size - taken)
            taken = size
        chunks.append(chunk)
    return b"".join(chunks)


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`.

    Raises:
        InvalidJSON: it is not JSON, or nested too deeply; with line and column.
        InvalidUnicode: it is not UTF-8, or a string holds a lone surrogate; with the field.
        InvalidType: it is JSON and not an object.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _diagnosis(body, error) from None
    if not isinstance(parsed, dict):
        raise InvalidType('The body must be a JSON object such as {"input": "some text"}.')
    return parsed


def _require_json(content_type: str) -> None:
    media = content_type.partition(";")[0].strip().lower()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        raise UnsupportedMediaType("Send JSON with the header `Content-Type: application/json`.")


def _require_plain(content_encoding: str) -> None:
    if content_encoding.strip().lower() not in {"", "identity"}:
        raise UnsupportedMediaType("Send the body as it is: Content-Encoding is not supported.")


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body is larger than {max_bytes:,} bytes (EMBEDQ_MAX_BODY_BYTES). "
        f"Send fewer texts per request, or a file to /v1/batches."
    )


def _diagnosis(body: bytes, error: orjson.JSONDecodeError) -> EmbedqError:
    if not body.strip():
        return InvalidJSON("The body is empty; a JSON object is needed.")
    try:
        body.decode()
    except UnicodeDecodeError as bad:
        return InvalidUnicode(f"The body is not valid UTF-8 (byte {bad.start}). Encode it as UTF-8.")
    where = f"line {error.lineno} column {error.colno}"
    if "surrogate" in error.msg:
        param = _surrogate_path(body)
        return InvalidUnicode(f"{param or 'A string'} holds half of a surrogate pair ({where}).", param=param)
    return InvalidJSON(f"The body is not valid JSON: {error.msg} ({where}).")


def _surrogate_path(body: bytes) -> str | None:
    if len(body) > _SURROGATE_SEARCH_BYTES:
        return None
    try:
        parsed = json.loads(body)  # unlike orjson it lets lone surrogates pass, so that they can be found
    except (ValueError, RecursionError):
        return None
    return _first_broken(parsed)


def _first_broken(parsed: object) -> str | None:
    # A stack of its own: a recursive generator would pay the whole depth again for every string.
    waiting: list[tuple[object, str]] = [(parsed, "")]
    while waiting:
        value, path = waiting.pop()
        if isinstance(value, str) and not _encodable(value):
            return path or None
        if isinstance(value, list):
            waiting += [(item, _within(path, f"[{index}]")) for index, item in enumerate(value)][::-1]
        elif isinstance(value, dict):
            for name, item in reversed(value.items()):
                part = f".{name[:_NAME_CHARS]}" if path else name[:_NAME_CHARS]
                waiting.append((item, _within(path, part)) if _encodable(name) else (name, path))
    return None


def _within(path: str, part: str) -> str:
    # Our own fields are two levels deep; further down, the place is known well enough by line and column.
    return path + part if len(path) < _NAME_CHARS else path


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
