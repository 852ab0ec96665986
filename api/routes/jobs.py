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
StatusQuery = Annotated[
    list[str] | None,
    Query(
        description="States to list, separated by commas; all by default. with_failures: completed, but not all parts. "
        "waiting: open, and for a reason other than in_line and working."
    ),
]
NameQuery = Annotated[
    str,
    Query(max_length=512, description="Part of an id, of a value of the metadata, or of the name of a dataset."),
]


@router.get("", response_model=Page[Job])
async def list_jobs(
    key: Reader,
    jobs: Jobs,
    page: PageQuery,
    answer: LargeJSON,
    *,
    kind: KindQuery = None,
    status: StatusQuery = None,
    name: NameQuery = "",
) -> Response:
    """Lists the caller's tasks, batches and ingestions together, newest first: the objects themselves."""
    return await answer(jobs.list(key, page, kind or (), status or (), name))
