"""OpenAI's call for vectors now. Takes the request for speed: see `api.read_texts_call`."""

from fastapi import APIRouter, Request, Response

from api.dependencies import embeddings_of
from api.load_limits import RATE_LIMIT_HEADERS, LargeResponse
from api.read_texts_call import documented, texts_call
from api.schemas.embeddings import EmbeddingList
from tasks.records.api_keys import Scope
from tasks.wire.embeddings_body import EmbeddingsBody

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

_HEADERS = {name: {"schema": {"type": "string"}} for name in ("openai-processing-ms", *RATE_LIMIT_HEADERS)}


@router.post(
    "",
    response_class=Response,
    responses={200: {"model": EmbeddingList, "headers": _HEADERS}},
    openapi_extra=documented(EmbeddingsBody, "online"),
)
async def create_embeddings(request: Request) -> Response:
    """Waits for the vectors of one or more texts and returns them in input order. A failed text fails the request."""
    async with texts_call(request, Scope.ONLINE) as call:
        content, headers = await embeddings_of(request).create(call)
        return LargeResponse(content, call.answer, "application/json", headers)
