"""What others own looks to a caller as if it did not exist: two answers would say which ids there are."""

from typing import Protocol, TypeVar

from tasks.errors import EmbedqError
from tasks.records.api_keys import Key
from tasks.records.store import Room
from worker_config.settings import Settings


class Owned(Protocol):
    """Something with an owner."""

    @property
    def owner(self) -> str:
        """The id of its owner."""


T = TypeVar("T", bound=Owned)


def own(key: Key, thing: T | None, missing: EmbedqError) -> T:
    """The thing, if it is the caller's; raises `missing` if it is not, or if there is none."""
    if thing is None or thing.owner != key.owner:
        raise missing
    return thing


def quota_of(key: Key, settings: Settings) -> int:
    """Bytes that the caller may store."""
    own_bytes = key.limits.stored_bytes
    return settings.file_quota_bytes if own_bytes is None else own_bytes


def room_of(key: Key, settings: Settings, **limits: int | None) -> Room:
    """What a new record of the caller may take. `limits`: by what counts in its account; None: there is none."""
    quota = {"stored": quota_of(key, settings)}
    known = {name: most for name, most in (quota | limits).items() if most is not None}
    return Room(known, max_memory_percent=settings.max_redis_memory_percent)
