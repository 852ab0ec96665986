"""The client library: text in, vectors out, over HTTP. The command line is `embedq.cli`."""

from embedq.errors import (
    EmbedqClientError,
    NotAuthenticatedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UnreachableError,
    WaitTimeoutError,
)
from embedq.modelinfo import ModelInfo
from embedq.service import EmbeddingService, EncodingOptions
from embedq.task import Counts, ItemError, Task

__all__ = [
    "Counts",
    "EmbeddingService",
    "EmbedqClientError",
    "EncodingOptions",
    "ItemError",
    "ModelInfo",
    "NotAuthenticatedError",
    "NotFoundError",
    "RefusedError",
    "Task",
    "UnavailableError",
    "UnreachableError",
    "WaitTimeoutError",
]
