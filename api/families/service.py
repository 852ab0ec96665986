"""The service itself: models, workers and queues as they are now, and the last hour in figures."""

import time
from dataclasses import asdict, fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer, query
from api.answer.json_response import NO_STORE, json_response
from api.families.route import CALLER, READING, Family
from api.queue.history import Figures
from api.queue.served_models import ServedModels
from api.services import Services
from tasks import errors
from tasks.errors import InvalidValue
from tasks.ledger import Lane, ModelOverview, WorkerEntry
from tasks.records.history import MAX_MINUTES, STEP_S

# The answers as pydantic models. They document; the functions below render.


class RedisState(BaseModel):
    """Redis as this process sees it."""

    up: bool = Field(description="Whether it answers. While it does not, everything else is as it was last seen.")
    memory_percent: int = Field(description="Memory in use, of its limit; 0 without a limit.")
    seen_at: float | None = Field(description="When it answered last, in Unix seconds by the clock of the API's host.")


class LiveWorker(BaseModel):
    """A worker that beats. Counts are since its start."""

    id: str
    pid: int
    host: str
    started_at: float = Field(description="When its model was ready, in Unix seconds.")
    tokens_per_second: float = Field(description="Estimated tokens, as it measures itself.")
    rss_bytes: int
    items: int = Field(description="Texts it has encoded.")
    forward_passes: int
    streams: int = Field(description="Claims that it works on at the same time.")


class LaneBacklog(BaseModel):
    """What waits or is being worked on in one lane."""

    tasks: int
    tokens: int = Field(description="Estimated.")
    seconds: float | None = Field(description="At the model's speed; null while no speed is known.")


class ModelLanes(BaseModel):
    """Both lanes of a model."""

    online: LaneBacklog
    bulk: LaneBacklog


class ServiceModel(BaseModel):
    """A model, its workers and its queue. What no worker has told yet is null."""

    id: str
    names: list[str] = Field(description="All names under which it is served, this one first.")
    dimension: int | None
    max_tokens: int | None
    device: str | None
    compute: str | None
    precision: str | None
    tokens_per_second: float | None = Field(description="Of all its workers, or as last known.")
    workers: list[LiveWorker]
    lanes: ModelLanes
    leases: int = Field(description="Claims that are being worked on.")


class DocumentsWorker(BaseModel):
    """A documents worker that beats."""

    id: str
    pid: int
    host: str
    started_at: float
    rss_bytes: int


class DocumentsQueue(BaseModel):
    """Work that needs no model: parsing, loading, assembling."""

    workers: list[DocumentsWorker]
    tasks: int = Field(description="Open ones.")


class ServiceState(BaseModel):
    """The service as it is now. Nothing in it belongs to a caller."""

    object: Literal["service"]
    version: str
    started_at: int = Field(description="When the process that answers started, in Unix seconds.")
    time: float = Field(description="Now, in Unix seconds by the clock of the API's host.")
    redis: RedisState
    models: list[ServiceModel]
    documents: DocumentsQueue


class HistorySeries(BaseModel):
    """One number for each step, the oldest first; null where there are no data."""

    queries: list[float | None] = Field(description="Synchronous requests per second that were answered with vectors.")
    passages: list[float | None] = Field(description="Texts per second whose vectors were stored.")
    p50_ms: list[float | None] = Field(description="Of queries, to 4.4 %.")
    p99_ms: list[float | None]
    backlog_seconds: list[float | None] = Field(description="Work of the model with the most, at its speed.")
    errors: list[float | None] = Field(description="Synchronous requests per second that the service failed.")


class ServiceHistory(BaseModel):
    """The last minutes in figures, of all web tier processes together."""

    model_config = ConfigDict(populate_by_name=True)

    object: Literal["history"]
    step: int = Field(description="Seconds from one number to the next.")
    from_: int = Field(alias="from", description="Begin of the first step, in Unix seconds by the clock of Redis.")
    series: HistorySeries


class RedisCheck(BaseModel):
    """One fact of the Redis, judged."""

    name: Literal["version", "appendonly", "maxmemory-policy", "appendfsync", "replicas", "clock"]
    value: str | None = Field(description="As Redis has it; null if it does not tell.")
    fine: bool = Field(description="False: accepted work may be lost, or Redis cannot serve.")
    detail: str = Field(description="What the value means.")
    advice: str = Field(description="What to do; empty when there is nothing to do.")


class RedisChecks(BaseModel):
    """What the Redis says of itself now."""

    object: Literal["redis"]
    checks: list[RedisCheck]


router = Family("service")

_SERIES = tuple(field.name for field in fields(Figures))
_DIGITS = 4
_MINUTES = frozenset(map(str, range(1, MAX_MINUTES + 1)))
_STARTED_AT = int(time.time())
_FACTS = ("dimension", "max_tokens", "device", "compute", "precision")
"""Of `ModelEntry`: what a worker said when it loaded the model."""
_OF_DOCUMENTS_WORKER = ("id", "pid", "host", "started_at", "rss_bytes")
_OF_WORKER = (*_OF_DOCUMENTS_WORKER, "items", "forward_passes", "streams")
"""Of `WorkerEntry`."""


@router.describe("GET", "/v1/service", Answer(200, ServiceState), scopes=READING)
async def read_service(request: Request) -> Response:
    """Returns models, workers and queues as they were about a second ago. No other process is asked."""
    services = Services.from_request(request)
    services.owner(request)
    return json_response(service_json(services.registry, request.app.version), NO_STORE)


@router.describe("GET", "/v1/service/redis", Answer(200, RedisChecks), scopes=READING)
async def check_redis(request: Request) -> Response:
    """Asks Redis whether accepted work is safe in it, and says what to change."""
    services = Services.from_request(request)
    services.owner(request)
    facts = await services.ledger.inspect()
    checks = [asdict(check) for check in facts.checks(services.settings.redis_ack)]
    return json_response({"object": "redis", "checks": checks}, NO_STORE)


@router.describe(
    "GET",
    "/v1/service/history",
    Answer(200, ServiceHistory),
    scopes=READING,
    errors=(*CALLER, errors.RequestError),
    reads=(
        query(
            "minutes",
            {"type": "integer", "minimum": 1, "maximum": MAX_MINUTES, "default": MAX_MINUTES},
            "How far back.",
            empty_is_absent=True,
        ),
    ),
)
async def read_history(request: Request) -> Response:
    """Returns the last minutes in figures, one for every ten seconds."""
    services = Services.from_request(request)
    services.owner(request)
    minutes = request.query_params.get("minutes") or str(MAX_MINUTES)
    if minutes not in _MINUTES:
        raise InvalidValue(f"minutes must be a whole number from 1 to {MAX_MINUTES}.", param="minutes")
    first, steps = await services.history.read(int(minutes) * 60 // STEP_S)
    body = {
        "object": "history",
        "step": STEP_S,
        "from": first * STEP_S,
        "series": {name: [_rounded(getattr(step, name)) for step in steps] for name in _SERIES},
    }
    return json_response(body, NO_STORE)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, _DIGITS)


def service_json(registry: ServedModels, version: str) -> dict[str, Any]:
    """The body of `GET /v1/service`, from the last overview of the ledger."""
    documents = registry.documents
    overviews = [*registry.overviews.values(), *([documents] if documents else [])]
    return {
        "object": "service",
        "version": version,
        "started_at": _STARTED_AT,
        "time": time.time(),
        "redis": {
            "up": registry.redis_up,
            "memory_percent": max((overview.memory_percent for overview in overviews), default=0),
            "seen_at": registry.seen_at,
        },
        "models": [_model(registry, queue) for queue in registry.queues()],
        "documents": {
            "workers": [_facts(worker, _OF_DOCUMENTS_WORKER) for worker in documents.workers] if documents else [],
            "tasks": sum(documents.backlog_tasks.values()) if documents else 0,
        },
    }


def _model(registry: ServedModels, queue: str) -> dict[str, Any]:
    overview = registry.overviews.get(queue)
    entry = registry.entry(queue)
    return {
        "id": queue,
        "names": registry.names_of(queue),
        **{fact: getattr(entry, fact, None) for fact in _FACTS},
        "tokens_per_second": overview.rate if overview else None,
        "workers": [_worker(worker) for worker in overview.workers] if overview else [],
        "lanes": {lane.value: _lane(overview, lane) for lane in Lane},
        "leases": overview.leases if overview else 0,
    }


def _worker(worker: WorkerEntry) -> dict[str, Any]:
    return {**_facts(worker, _OF_WORKER), "tokens_per_second": worker.rate}


def _facts(worker: WorkerEntry, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(worker, name) for name in names}


def _lane(overview: ModelOverview | None, lane: Lane) -> dict[str, Any]:
    if overview is None:
        return {"tasks": 0, "tokens": 0, "seconds": 0.0}
    tokens = overview.backlog_cost[lane]
    seconds = tokens / overview.rate if overview.rate else None
    return {"tasks": overview.backlog_tasks[lane], "tokens": tokens, "seconds": seconds if tokens else 0.0}
