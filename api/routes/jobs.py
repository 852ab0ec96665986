"""Jobs: tasks, batches and ingestions in one list."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from api.auth import Reader
from api.dependencies import Jobs, LargeJSON, PageQuery
from api.schemas.answer_parts import Page
from api.schemas.jobs import Job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

KindQuery = Annotated[
    list[str] | None, Query(description="Some of task, batch and ingestion, separated by commas; all by default.")
]
StatusQuery = Annotated[list[str] | None, Query(description="States to list, separated by commas; all by default.")]


@router.get("", response_model=Page[Job])
async def list_jobs(
    key: Reader, jobs: Jobs, page: PageQuery, answer: LargeJSON, *, kind: KindQuery = None, status: StatusQuery = None
) -> Response:
    """Lists the caller's tasks, batches and ingestions together, newest first: the objects themselves."""
    return await answer(jobs.list(key, page, kind or (), status or ()))
