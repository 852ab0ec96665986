"""Answers of the server: dicts, as they came. One that something else has given is an error in words."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from embedq.errors import RefusedError

_UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, EOFError)
"""What reading raises if something else than embedq has answered. Errors of JSON, base64 and UTF-8 are ValueErrors."""


class Job(dict[str, Any]):
    """A task, batch or ingestion as the server describes it: its JSON, and what is asked of it most."""

    @property
    def id(self) -> str:
        """What `status`, `wait` and `cancel` take."""
        return str(self["id"])

    @property
    def status(self) -> str:
        """One word, such as `queued`, `in_progress` or `completed`."""
        return str(self["status"])

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in {"completed", "failed", "cancelled", "expired"}

    @property
    def succeeded(self) -> bool:
        """Whether every text or document came through."""
        return self.status == "completed" and not self["counts"]["failed"]


@contextmanager
def reading(response: httpx.Response, what: str) -> Iterator[None]:
    """Reads a successful response in its block.

    Raises:
        RefusedError: it is not `what`, so something else than embedq probably answered.
    """
    try:
        yield
    except _UNREADABLE as error:
        raise RefusedError(
            f"The answer of {response.url.path} is not {what}. Is the address that of an embedq server?",
            code="unexpected_answer",
            status=response.status_code,
            request_id=response.headers.get("x-request-id"),
        ) from error


def read_object(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of an answer. Those of the server say in `object` what they are; raises as `reading`."""
    with reading(response, "an object of embedq"):
        answer: dict[str, Any] = response.json()
        answer["object"]
    return answer
