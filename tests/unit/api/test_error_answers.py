"""What an error answer leaves behind."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from starlette.types import Scope

from api import error_responses
from tasks.errors import RateLimited


class Held:
    """Something that the scope of a request holds."""


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _refuse() -> None:
    raise RateLimited("Too many.", retry_after_s=3)


def _refused() -> tuple[weakref.ref[Held], error_responses.AnsweredError | None]:
    """One request as a route refuses it."""
    held = Held()
    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "held": held}
    try:
        _refuse()
    except RateLimited as error:
        error_responses.response(error, scope, scope["path"])
    return weakref.ref(held), error_responses.answered(scope)


@pytest.mark.usefixtures("_no_collector")
def test_a_refused_request_is_freed_when_it_is_answered() -> None:
    held, _ = _refused()
    assert held() is None


def test_its_code_and_its_time_are_noted() -> None:
    assert _refused()[1] == ("rate_limited", 3)
