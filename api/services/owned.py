"""What others own looks to a caller as if it did not exist: two answers would say which ids there are."""

from typing import Protocol, TypeVar

from tasks.errors import EmbedqError
from tasks.records.api_keys import Key


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
