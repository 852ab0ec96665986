"""From a request's body to what a drafter makes of it; waits for the vocabulary where token numbers need it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from api.offload import offload
from api.services import Services
from api.tokens import VocabularyNotLoaded

P = ParamSpec("P")
R = TypeVar("R")


async def draft(services: Services, size_bytes: int, make: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What `make` returns, a method of `services.drafter`; in a thread if the body is large.

    Raises:
        RequestError: what `make` raises, or that token numbers cannot be decoded here.
    """
    try:
        return await offload(size_bytes, make, *args, **kwargs)
    except VocabularyNotLoaded:
        assert services.drafter.vocabulary is not None  # noqa: S101 - it raised
        await services.drafter.vocabulary.load()
    return await offload(size_bytes, make, *args, **kwargs)
