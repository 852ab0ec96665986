"""The OpenAPI document, and the same for people. Both are made once, before anybody is served: that takes 60 ms."""

from dataclasses import dataclass
from typing import Any, Self, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.document.reference import POLICY, page
from api.server.direct import direct_router

router = direct_router(tag="docs")

_HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


@dataclass(frozen=True, slots=True)
class Reference:
    """Both forms, ready to be sent."""

    document: bytes
    page: bytes

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """Of the OpenAPI document."""
        return cls(orjson.dumps(document), page(document).encode())


@router.get("/openapi.json", include_in_schema=False)
@router.head("/openapi.json", include_in_schema=False)
async def read_document(request: Request) -> Response:
    """Open, also where API keys are needed."""
    return Response(_reference(request).document, media_type="application/json")


@router.get("/docs", include_in_schema=False)
async def read_docs(request: Request) -> Response:
    """One page that needs nothing else, so it works without a network. Open like the document itself."""
    return Response(_reference(request).page, media_type="text/html", headers=_HEADERS)


def _reference(request: Request) -> Reference:
    return cast("Reference", request.app.state.reference)
