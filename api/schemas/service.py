"""The service itself: models, workers and queues as they are now."""

from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.answer_parts import Shown
from api.schemas.models import ModelFacts

ABSENT = "Since when no worker beats, in Unix seconds; null where one does, and where that is unknown."


class Live(BaseModel):
    """The process is alive."""

    status: Literal["live"] = "live"


class Ready(BaseModel):
    """A worker with a loaded model beats."""

    status: Literal["ready"] = "ready"
    redis: Literal["up"] = "up"
    workers: dict[str, int]
    storage: str | None = Field(
        description="What keeps a role from the storage, and what to do. Work that needs it waits; queries do not."
    )


class RedisState(BaseModel):
    """Redis as this process sees it."""

    up: bool = Field(description="Whether it answers. While it does not, everything else is as it was last seen.")
    memory_percent: int = Field(description="Memory in use, of its limit; 0 without a limit.")
    used_bytes: int = Field(description="What open tasks may still need included.")
    limit_bytes: int = Field(description="Its `maxmemory`; 0: none.")
    tasks_percent: int = Field(description="Above it tasks, batches and ingestions are refused.")
    queries_percent: int = Field(description="Above it queries too.")
    seen_at: float | None = Field(description="When it answered last, in Unix seconds by the clock of the API's host.")


class DocumentsWorker(Shown):
    """A documents worker that beats."""

    id: str
    pid: int | None = Field(
        description="Null for keys without the scope `operate`; host and rss_bytes too, and id is a digest."
    )
    host: str | None
    started_at: float = Field(description="When it was ready, in Unix seconds.")
    rss_bytes: int | None
    deaths: int = Field(description="How often its process died and was replaced.")
    died_at: float | None = Field(description="The last time, in Unix seconds.")
    died_of: str | None = Field(description="By which signal or with which exit code.")


class LiveWorker(DocumentsWorker):
    """A worker that beats. Counts are since its start."""

    items: int = Field(description="Texts it has encoded.")
    forward_passes: int
    streams: int = Field(description="Claims that it works on at the same time.")
    tokens_per_second: float = Field(validation_alias="rate", description="Estimated tokens, as it measures itself.")


class LaneBacklog(BaseModel):
    """What waits or is being worked on in one lane: of all owners with the scope `operate`, else of the caller."""

    tasks: int
    tokens: int = Field(description="Estimated.")
    seconds: float | None = Field(
        description="Of all owners' work, at the model's speed; null while no speed is known."
    )
    oldest_s: float | None = Field(
        description="For how long the oldest task has waited, of those next in line; null where none waits."
    )


class Loading(BaseModel):
    """What a worker loads that has no model yet."""

    model: str = Field(description="Hub id or folder.")
    source: str = Field(description="From where, in words.")
    since: float = Field(description="Unix seconds at which it began.")


class ServiceModel(ModelFacts):
    """A model, its workers and its queue."""

    id: str
    names: list[str] = Field(description="All names under which it is served, this one first.")
    tokens_per_second: float | None = Field(description="Of all its workers, or as last known.")
    workers: list[LiveWorker]
    loading: list[Loading] = Field(description="Workers that load the model and do not serve it yet.")
    absent_since: float | None = Field(description=ABSENT)
    lanes: dict[Literal["online", "bulk"], LaneBacklog]
    leases: int = Field(description="Claims that are being worked on.")


class DocumentsQueue(BaseModel):
    """Work that needs no model: parsing, loading, assembling."""

    workers: list[DocumentsWorker]
    tasks: int = Field(description="Open ones.")
    absent_since: float | None = Field(description=ABSENT)


class ServiceState(BaseModel):
    """The service as it is now."""

    object: Literal["service"] = "service"
    version: str
    started_at: int = Field(description="When the process that answers started, in Unix seconds.")
    time: float = Field(description="Now, in Unix seconds by the clock of the API's host.")
    redis: RedisState
    models: list[ServiceModel]
    documents: DocumentsQueue


class RedisCheck(Shown):
    """One fact of the Redis, judged."""

    name: Literal["version", "mode", "appendonly", "maxmemory-policy", "appendfsync", "replicas", "clock"]
    value: str | None = Field(description="As Redis has it; null if it does not tell.")
    fine: bool = Field(description="False: accepted work may be lost, or Redis cannot serve.")
    detail: str = Field(description="What the value means.")
    advice: str = Field(description="What to do; empty when there is nothing to do.")


class RedisChecks(BaseModel):
    """What the Redis says of itself now."""

    object: Literal["redis"] = "redis"
    checks: list[RedisCheck]
