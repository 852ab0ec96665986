"""OpenAI's call for vectors now."""

from fastapi import APIRouter, Response

from api.auth import OnlineCaller
from api.dependencies import Answer, Embeddings, Gone, Patience, TextsBody, json_body
from api.request_limits import RATE_LIMIT_HEADERS, LargeResponse
from api.schemas.embeddings import EmbeddingList
from tasks.wire.embeddings_body import EmbeddingsBody

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

_HEADERS = {name: {"schema": {"type": "string"}} for name in ("openai-processing-ms", *RATE_LIMIT_HEADERS)}


@router.post(
    "",
    response_class=Response,
    responses={200: {"model": EmbeddingList, "headers": _HEADERS}},
    openapi_extra=json_body(EmbeddingsBody),
)
async def create_embeddings(
    key: OnlineCaller, embeddings: Embeddings, body: TextsBody, patience_s: Patience, gone: Gone, answer: Answer
) -> Response:
    """Waits for the vectors of one or more texts and returns them in input order. A failed text fails the request."""
    content, headers = await embeddings.create(key, body, patience_s, gone, answer)
    return LargeResponse(content, headers=headers, media_type="application/json")
