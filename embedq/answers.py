"""Reads answers of the server into values; one that cannot be read is an error in words."""

import base64
import binascii
import io
from collections.abc import Mapping, Sequence
from json import JSONDecodeError
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from embedq.errors import unexpected
from embedq.task import ItemError, Task

Vectors = npt.NDArray[np.float32]

_UNREADABLE = (KeyError, TypeError, AttributeError, binascii.Error, ValueError, JSONDecodeError, UnicodeDecodeError)


def read_task(response: httpx.Response) -> Task:
    """The task that the answer describes."""
    try:
        return Task.from_json(response.json(), response.headers.get("etag"))
    except _UNREADABLE as error:
        raise unexpected(response, "a task") from error


def read_embeddings(response: httpx.Response, expected: int) -> list[list[float]]:
    """The vectors of an OpenAI embedding list in base64, of which there must be `expected`."""
    try:
        data = response.json()["data"]
        vectors = [
            np.frombuffer(base64.b64decode(item["embedding"], validate=True), dtype="<f4").tolist() for item in data
        ]
    except _UNREADABLE as error:
        raise unexpected(response, "a list of vectors") from error
    if len(vectors) != expected:
        raise unexpected(response, f"a list of {expected} vectors")
    return vectors


def read_array(response: httpx.Response) -> Vectors:
    """The `.npy` array in the answer, float32."""
    try:
        return np.asarray(np.load(io.BytesIO(response.content), allow_pickle=False), dtype=np.float32)
    except (ValueError, EOFError) as error:
        raise unexpected(response, "a .npy array") from error


def read_item_errors(response: httpx.Response) -> dict[int, ItemError]:
    """The error items of an embedding list: index -> error."""
    try:
        return {
            item["index"]: ItemError(item["error"]["code"], item["error"]["message"])
            for item in response.json()["data"]
            if item["object"] == "error"
        }
    except _UNREADABLE as error:
        raise unexpected(response, "an embedding list") from error


def read_model(response: httpx.Response) -> Mapping[str, Any] | None:
    """A model's entry; of a list, the first one that is ready, else the first; None when the list is empty."""
    entries = read_models(response)
    return next((entry for entry in entries if entry.get("ready")), entries[0] if entries else None)


def read_models(response: httpx.Response) -> Sequence[Mapping[str, Any]]:
    """The entries of a list of models, or the one entry that the answer is."""
    try:
        body = response.json()
        return [{"id": entry["id"], **entry} for entry in (body["data"] if body["object"] == "list" else [body])]
    except _UNREADABLE as error:
        raise unexpected(response, "a list of models") from error
