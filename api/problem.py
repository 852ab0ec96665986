"""One error as one body: `application/problem+json` (RFC 9457) with the `error` member of OpenAI's clients in it."""

import secrets

import orjson
from starlette.responses import Response

from api.failures import ItemFailed
from tasks.errors import EmbedqError, Unauthenticated

MEDIA_TYPE = "application/problem+json"


def problem(error: EmbedqError, *, instance: str) -> Response:
    """The response to a request for the path `instance` that ended in `error`."""
    code = error.item_code if isinstance(error, ItemFailed) else error.code
    body = {
        "type": f"urn:embedq:error:{code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "instance": instance,
        "error": {"message": error.detail, "type": error.type, "param": error.param, "code": code},
    }
    return Response(orjson.dumps(body), error.status, headers(error), MEDIA_TYPE)


def new_request_id() -> bytes:
    """A name for a request whose caller gave it none."""
    return b"req_" + secrets.token_hex(12).encode()


def headers(error: EmbedqError) -> dict[str, str]:
    """What a response to a request that ended in `error` says in its head, whatever the form of its body."""
    found = {"cache-control": "no-store"}
    if error.retry_after_s is not None:
        found["retry-after"] = str(error.retry_after_s)
    if error.should_retry is not None:
        # openai-python decides by this header before it looks at the status.
        found["x-should-retry"] = "true" if error.should_retry else "false"
    if isinstance(error, Unauthenticated):
        found["www-authenticate"] = "Bearer"
    return found
