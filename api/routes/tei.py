"""The calls of text-embeddings-inference (TEI), in its own forms, for clients that speak to such a server.

Errors on these paths have TEI's form, too (`api.tei_errors`). `embed` takes the request for speed: see
`api.read_texts_call`.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from api.auth import AnyKey
from api.dependencies import Embeddings, embeddings_of
from api.load_limits import LargeResponse
from api.openapi import TEI_RESPONSES
from api.pages import console
from api.read_texts_call import documented, texts_call
from api.schemas.embeddings import EmbedBody, TEIInfo
from api.schemas.service import Live
from tasks.records.api_keys import Scope

router = APIRouter(tags=["text-embeddings-inference"], responses=TEI_RESPONSES)

_VECTORS: dict[int | str, dict[str, Any]] = {200: {"model": list[list[float]]}}


@router.get("/", response_class=Response, responses={200: {"model": Live, "content": {"text/html": {}}}})
async def root(accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """Answers 200 while the process's event loop turns, and a browser with the page of the console."""
    if "text/html" in accept:  # from the address bar of a browser: other clients do not ask for HTML
        return await console()
    return Response(Live().model_dump_json(), media_type="application/json")


@router.post("/embed", response_class=Response, responses=_VECTORS, openapi_extra=documented(EmbedBody, "online"))
@router.post(
    "/",
    name="embed_at_root",
    response_class=Response,
    responses=_VECTORS,
    openapi_extra=documented(EmbedBody, "online"),
)
async def embed(request: Request) -> Response:
    """Returns the vectors of one or more texts by the server's own model, as a list of lists in input order."""
    async with texts_call(request, Scope.ONLINE) as call:
        return LargeResponse(await embeddings_of(request).embed(call), call.answer, "application/json", {})


@router.get("/info")
async def info(_key: AnyKey, embeddings: Embeddings) -> TEIInfo:
    """Returns the served model and its limits."""
    return embeddings.info()


@router.get("/health", response_class=Response)
async def health(embeddings: Embeddings) -> Response:
    """Answers 200 while a worker serves the model, as of about a second ago. No other process is asked."""
    embeddings.require_worker()
    return Response()
