"""From a request's body to what a drafter makes of it; waits for the vocabulary where token numbers need it."""

from collections.abc import Callable
from typing import TypeVar

from api.offload import offload_in_turn
from api.services import Services
from api.tokens import VocabularyNotLoaded

R = TypeVar("R")


async def draft(services: Services, size_bytes: int, patience_s: float, make: Callable[[], R]) -> R:
    """What `make` returns, which calls `services.drafter`; in a thread if the body is large.

    Raises:
        RequestError: what `make` raises, or that token numbers cannot be decoded here.
        NotReady: they cannot be within `patience_s`.
    """
    try:
        return await offload_in_turn(size_bytes, make)
    except VocabularyNotLoaded:
        assert services.drafter.vocabulary is not None  # noqa: S101 - it raised
        await services.drafter.vocabulary.load(patience_s)
    return await offload_in_turn(size_bytes, make)
