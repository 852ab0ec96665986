"""Reads the server's responses into values. A response that cannot be read is an error in words."""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from embedq.errors import RefusedError
from embedq.task import Task, TextError

Vectors = npt.NDArray[np.float32]

_UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, EOFError)
"""What reading raises if something else than embedq has answered. Errors of JSON, base64 and UTF-8 are ValueErrors."""


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


def read_task(response: httpx.Response) -> Task:
    """The task that the response describes."""
    with reading(response, "a task"):
        return Task.from_json(response.json())


def read_embeddings(response: httpx.Response, expected: int) -> list[list[float]]:
    """The vectors of an OpenAI embedding list in base64, of which there must be `expected`."""
    with reading(response, "a list of vectors"):
        data = response.json()["data"]
        vectors = [
            np.frombuffer(base64.b64decode(item["embedding"], validate=True), dtype="<f4").tolist() for item in data
        ]
    with reading(response, f"a list of {expected} vectors"):
        if len(vectors) != expected:
            raise ValueError(f"{len(vectors)} vectors")
    return vectors


def read_array(response: httpx.Response) -> Vectors:
    """The `.npy` array in the response, float32."""
    with reading(response, "a .npy array"):
        return np.asarray(np.load(io.BytesIO(response.content), allow_pickle=False), dtype=np.float32)


def read_item_errors(response: httpx.Response) -> dict[int, TextError]:
    """The error items of an embedding list: index -> error."""
    with reading(response, "an embedding list"):
        return {
            item["index"]: TextError(item["error"]["code"], item["error"]["message"])
            for item in response.json()["data"]
            if item["object"] == "error"
        }


def read_model(response: httpx.Response) -> Mapping[str, Any] | None:
    """A model's entry; of a list, the first one that is ready, else the first; None when the list is empty."""
    entries = read_models(response)
    return next((entry for entry in entries if entry.get("ready")), entries[0] if entries else None)


def read_models(response: httpx.Response) -> Sequence[Mapping[str, Any]]:
    """The entries of a list of models, or the one entry that the response is."""
    with reading(response, "a list of models"):
        body = response.json()
        return [{"id": entry["id"], **entry} for entry in (body["data"] if body["object"] == "list" else [body])]
