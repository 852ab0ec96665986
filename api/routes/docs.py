"""The OpenAPI document for people."""

from starlette.requests import Request
from starlette.responses import Response

from api.direct import direct_router
from api.reference import POLICY, page

router = direct_router(tag="docs")

_HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


@router.get("/docs", include_in_schema=False)
async def read_docs(request: Request) -> Response:
    """One page that needs nothing else, so it works without a network. Open like the document itself."""
    return Response(page(request.app.openapi()), media_type="text/html", headers=_HEADERS)
