"""The client library: text in, vectors out, over HTTP. The command line is `embedq.cli`.

Names are loaded when they are used: `embedq --help` needs neither httpx nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedq.errors import (
        EmbedqClientError,
        NotAuthenticatedError,
        NotFoundError,
        RefusedError,
        UnavailableError,
        UnreachableError,
        WaitTimeoutError,
    )
    from embedq.ingestions import Ingestions
    from embedq.service import EmbeddingService, EncodingOptions
    from embedq.transport import Job

__all__ = [
    "EmbeddingService",
    "EmbedqClientError",
    "EncodingOptions",
    "Ingestions",
    "Job",
    "NotAuthenticatedError",
    "NotFoundError",
    "RefusedError",
    "UnavailableError",
    "UnreachableError",
    "WaitTimeoutError",
]

_MODULES = {"EmbeddingService": "service", "EncodingOptions": "service", "Ingestions": "ingestions", "Job": "transport"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'embedq' has no attribute {name!r}")
    return getattr(import_module(f"embedq.{_MODULES.get(name, 'errors')}"), name)
