"""Lines of a batch's file, the limits under which they are checked, and the models that they may name."""

import json
from typing import Any

from tasks.batches.check_lines import FileLimits, KnownModels
from tasks.ledger.overview import Queue
from tasks.model import Model

MODEL, ALIAS, OTHER = "own/model", "text-embedding-3-small", "other/model"
DROP: Any = object()
LIMITS = FileLimits(
    max_lines=50,
    max_inputs=100,
    max_line_bytes=5000,
    max_line_inputs=8,
    max_input_bytes=100,
)


def models() -> KnownModels:
    model = Model(MODEL, "r", 16, 32, ("query",), "cpu", "fake", "float32", id=MODEL)
    return KnownModels((MODEL, ALIAS), {name: Queue(name, model, rate=160.0) for name in (MODEL, OTHER)})


def line(custom_id: object = "a", *, body: object = None, **changed: Any) -> str:
    """A good line, with some of it changed or dropped."""
    fields = {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body or good_body()}
    return json.dumps({name: value for name, value in (fields | changed).items() if value is not DROP})


def good_body(**changed: Any) -> dict[str, Any]:
    fields = {"model": MODEL, "input": "some text"} | changed
    return {name: value for name, value in fields.items() if value is not DROP}
