"""The map of a dataset: its vectors on a plane. A documents worker draws it when somebody first asks for it."""

from hashlib import sha256
from typing import Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import SECONDS, TEXT, Answer, ResponseHeader, query
from api.answer.json_response import NO_STORE, json_response
from api.families.dataset_contents import large_json
from api.families.route import CALLER, READING, Family, page_limit
from api.idempotency import DIGEST_CHARS
from api.parts import Services
from api.queue.accept import submit
from api.request.paging import read_limit
from api.waiting.why_waiting import WAITING, Waiting, why_waiting
from tasks import errors
from tasks.errors import InternalError, InvalidValue, NotStored
from tasks.ledger import Admission, Alias, Lane, Task
from tasks.ledger.ids import new_task_id
from tasks.ledger.operations import read_committed
from tasks.records.dataset_maps import CLUSTER, MAP_JOB, MAX_POINTS, DatasetMap, map_name
from tasks.records.datasets import Catalog, Version
from tasks.records.document_jobs import JobCall, job_task

_RETRY_AFTER_S = 2
_ENDED_JOB_MS = 30_000
"""How long the end of a job is remembered: a map that cannot be drawn is not tried again at each request."""
_MAX_WAITING_S = 3600
_POINTS_AT_ONCE = 4096
"""Rendering holds the interpreter lock, and with it the event loop."""
_DECIMALS = 4


class MapOfDataset(BaseModel):
    """A plane on which chunks of similar meaning lie close together: the two main axes of the vectors (PCA)."""

    object: Literal["map"]
    dataset: str
    version: int
    rows: int = Field(description="Chunks in the dataset.")
    sampled: bool = Field(description="Whether the points are a sample of the chunks.")
    points: list[tuple[float, float, int]] = Field(description="x and y from -1 to 1, and an index into `colors`.")
    ids: list[tuple[str, int]] = Field(description="Document and chunk of each point.")
    colors: list[str] = Field(description="The commonest values; the rest is `other`, and `none` has no such field.")
    fields: list[str] = Field(description="What `color` can be beside `cluster`.")
    explained: tuple[float, float] = Field(description="Share of the variance that each axis shows.")


class MapInTheMaking(BaseModel):
    """A documents worker draws the map; ask again after `Retry-After`."""

    object: Literal["map"]
    status: Literal["computing"]
    dataset: str
    version: int
    waiting: Waiting | None = WAITING


router = Family("datasets")


@router.describe(
    "GET",
    "/v1/datasets/{name}/map",
    Answer(200, MapOfDataset),
    Answer(202, MapInTheMaking, headers=(ResponseHeader("Retry-After", "Seconds.", SECONDS, required=True),)),
    scopes=READING,
    errors=(
        *CALLER,
        errors.RequestError,
        errors.DatasetUnknown,
        errors.NotStored,
        errors.StorageUnavailable,
        errors.Overloaded,
        errors.BacklogFull,
        errors.StorageFull,
    ),
    reads=(
        query("color", TEXT, "A field of the metadata, or `cluster`, which is the default.", empty_is_absent=True),
        page_limit("Of the points.", default=MAX_POINTS, most=MAX_POINTS),
    ),
)
async def read_map(request: Request, name: str) -> Response:
    """Returns a dataset as points on a plane, coloured by a field of the metadata or by cluster."""
    services = Services.from_request(request)
    owner = services.owner(request)
    color = request.query_params.get("color") or CLUSTER
    limit = read_limit(request.query_params, default=MAX_POINTS, most=MAX_POINTS)
    version = await services.datasets.present(owner, name)
    catalog = version.catalog
    if not catalog.listed:
        return json_response(_facts(catalog, DatasetMap(np.zeros((0, 2), np.float32), [], [], (0, 0)), 0, []), NO_STORE)
    storage = await services.storage.open()
    try:
        stored = await services.storage.run(storage.read, map_name(catalog))
    except NotStored:
        return await _in_the_making(services, owner, version)
    return large_json(services, request, await services.storage.run(_render, catalog, stored, color, limit))


async def _in_the_making(services: Services, owner: str, version: Version) -> Response:
    """Has the map drawn, by one job however often it is asked for; raises what came of a job that failed."""
    catalog = version.catalog
    submission = job_task(
        new_task_id(),
        JobCall(MAP_JOB, version.stored.name if version.stored else ""),
        owner=owner,
        lane=Lane.ONLINE,
        ttl_ms=_ENDED_JOB_MS,
        admission=Admission(
            max_backlog_s=_MAX_WAITING_S, max_memory_percent=services.settings.max_redis_memory_percent
        ),
        alias=_alias(catalog),
    )
    reply = await submit(services, submission)
    jobs: list[Task] = []
    committed = await services.ledger.run(read_committed(reply.task_id))
    if committed is not None:
        jobs = [committed.task]
        error = committed.errors.get(0)
        if error is not None and error.code == NotStored.code:
            raise NotStored(error.message)
        if error is not None:
            raise InternalError(f"The map could not be drawn ({error.code}). It is tried again after half a minute.")
    (waiting,) = await why_waiting(services.ledger, services.registry, jobs) if jobs else [None]
    answer = {
        "object": "map",
        "status": "computing",
        "dataset": catalog.dataset,
        "version": catalog.version,
        "waiting": waiting,
    }
    return json_response(answer, {"retry-after": str(_RETRY_AFTER_S), **NO_STORE}, status=202)


def _alias(catalog: Catalog) -> Alias:
    digest = sha256(f"map {catalog.id} {catalog.version}".encode()).hexdigest()[:DIGEST_CHARS]
    return Alias(digest, digest, join=False)  # one that has failed is found too, for as long as it is remembered


def _render(catalog: Catalog, stored: bytes, color: str, limit: int) -> bytes:
    drawn = DatasetMap.from_bytes(stored)
    coloring = drawn.coloring(color)
    if coloring is None:
        known = ", ".join(one.name for one in drawn.colorings)
        raise InvalidValue(f"No point has this field. color may be one of: {known}.", param="color")
    count = min(limit, len(drawn.points))
    places = np.round(drawn.points[:count].astype(np.float64), _DECIMALS)
    points = []
    for first in range(0, count, _POINTS_AT_ONCE):
        piece = slice(first, first + _POINTS_AT_ONCE)
        rows = zip(places[piece].tolist(), coloring.numbers[:count][piece].tolist(), strict=True)
        points.append(orjson.dumps([(x, y, number) for (x, y), number in rows])[1:-1])
    facts = _facts(catalog, drawn, count, coloring.colors)
    facts["points"] = orjson.Fragment(b"[" + b",".join(points) + b"]")
    facts["ids"] = orjson.Fragment(b"[" + b",".join(drawn.ids[:count]) + b"]")
    return orjson.dumps(facts)


def _facts(catalog: Catalog, drawn: DatasetMap, shown: int, colors: Any) -> dict[str, Any]:
    return {
        "object": "map",
        "dataset": catalog.dataset,
        "version": catalog.version,
        "rows": catalog.rows,
        "sampled": shown < catalog.rows,
        "points": [],
        "ids": [],
        "colors": colors,
        "fields": [one.name for one in drawn.colorings if one.name != CLUSTER],
        "explained": drawn.explained,
    }
