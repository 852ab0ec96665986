"""Ingestions: documents in, vectors in a store out."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BeforeValidator

from api.auth import IngestionMaker, IngestionReader
from api.dependencies import IdempotencyKey, Ingestions, InTurn, Jobs, LargeJSON, PageQuery, SmallBody, json_body
from api.schemas.answer_parts import Deleted, Page, path_here
from api.schemas.files import CONTENT
from api.schemas.ingestions import DocumentGroups, Ingestion, IngestionDocument, KnownDocuments, Output
from api.schemas.new_ingestion import NewIngestion

router = APIRouter(prefix="/v1/ingestions", tags=["ingestions"])

FilterQuery = Annotated[
    Literal["loaded", "unchanged", "failed", "in_progress", "warned"] | None,
    BeforeValidator(lambda value: value or None),
    Query(alias="filter", description="Documents in this state only; warned: those with warnings."),
]
GroupedQuery = Annotated[Literal["failed", "warned"], Query(alias="filter", description="Which documents.")]


@router.post("", status_code=202, openapi_extra=json_body(NewIngestion))
async def create_ingestion(
    key: IngestionMaker,
    ingestions: Ingestions,
    body: SmallBody,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> Ingestion:
    """Starts an ingestion of documents. Faults of a document show later: that document then fails."""
    made = await ingestions.create(key, body, idempotency_key)
    response.headers.update({"location": path_here(f"/v1/ingestions/{made.id}"), "retry-after": "1"})
    return made


@router.post("/files/known", openapi_extra=json_body(NewIngestion))
async def read_known_documents(key: IngestionReader, ingestions: Ingestions, body: SmallBody) -> KnownDocuments:
    """Lists the files that an ingestion names by `sha256` and would find unchanged. It is not started."""
    return await ingestions.known(key, body)


@router.get("", response_model=Page[Ingestion])
async def list_ingestions(key: IngestionReader, jobs: Jobs, page: PageQuery, answer: LargeJSON) -> Response:
    """Lists the caller's ingestions, newest first."""
    return await answer(jobs.list(key, page, ["ingestion"]))


@router.get("/{ingestion_id}")
async def read_ingestion(key: IngestionReader, ingestions: Ingestions, ingestion_id: str) -> Ingestion:
    """Returns an ingestion as it is now."""
    return await ingestions.read(key, ingestion_id)


@router.get("/{ingestion_id}/documents")
async def list_ingestion_documents(
    key: IngestionReader, ingestions: Ingestions, ingestion_id: str, page: PageQuery, status: FilterQuery = None
) -> Page[IngestionDocument]:
    """Lists the documents of an ingestion and their outcomes, in the order of the source."""
    return await ingestions.documents(key, ingestion_id, status, page)


@router.get("/{ingestion_id}/documents/groups")
async def group_ingestion_documents(
    key: IngestionReader, ingestions: Ingestions, ingestion_id: str, _turn: InTurn, status: GroupedQuery = "failed"
) -> DocumentGroups:
    """Counts the failed documents of an ingestion by code, or those with warnings, and names the first of each."""
    return await ingestions.groups(key, ingestion_id, status)


@router.get("/{ingestion_id}/output")
async def list_ingestion_output(key: IngestionReader, ingestions: Ingestions, ingestion_id: str) -> Output:
    """Lists the Parquet files of an ingestion's dataset, as the dataset is now."""
    return await ingestions.output(key, ingestion_id)


@router.get("/{ingestion_id}/output/{name}", response_class=Response, responses={200: CONTENT[200]})
async def read_ingestion_output(key: IngestionReader, ingestions: Ingestions, ingestion_id: str, name: str) -> Response:
    """Returns one Parquet file; 410 where the dataset has changed since it was listed."""
    return (await ingestions.part(key, ingestion_id, name)).response()


@router.post("/{ingestion_id}/cancel")
async def cancel_ingestion(key: IngestionMaker, ingestions: Ingestions, ingestion_id: str) -> Ingestion:
    """Cancels an ingestion; what is loaded stays. Cancelling twice returns 200."""
    return await ingestions.cancel(key, ingestion_id)


@router.post("/{ingestion_id}/retry")
async def retry_ingestion(key: IngestionMaker, ingestions: Ingestions, ingestion_id: str) -> Ingestion:
    """Tries the failed documents of an ended ingestion again under its id. A resumable one goes on where it was."""
    return await ingestions.retry(key, ingestion_id)


@router.delete("/{ingestion_id}")
async def delete_ingestion(key: IngestionMaker, ingestions: Ingestions, ingestion_id: str) -> Deleted:
    """Deletes the record of an ended ingestion and its documents' outcomes. What it has loaded under a name stays."""
    await ingestions.delete(key, ingestion_id)
    return Deleted(id=ingestion_id, object="ingestion")
