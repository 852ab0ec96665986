"""Vectors as clients want them: OpenAI's list with floats or base64, or an `.npy` file. Straight from the buffer."""

import io
from collections.abc import Iterator

import numpy as np
import orjson

from tasks.ledger.task import Result
from tasks.wire import embedding_list as rendering

NPY = "application/x-npy"
_ROWS_AT_ONCE = 32
"""Rendering holds the interpreter lock, and with it the event loop."""


def size_bytes(result: Result) -> int:
    """Bytes of the vectors, as a measure of the work of rendering them."""
    return int(result.vectors.nbytes)


def embedding_list(result: Result, *, base64: bool) -> bytes:
    """OpenAI's embedding list in input order; a failed item is an object of type `error` in its place."""
    entries = (_item(result, index, base64=base64) for index in range(result.task.total))
    return rendering.embedding_list(entries, model=result.task.queue, tokens=result.task.prompt_tokens)


def matrix(result: Result) -> bytes:
    """The vectors as JSON, a list of lists and nothing else: the form of text-embeddings-inference."""
    return b"[" + b",".join(_rows(result)) + b"]"


def _rows(result: Result) -> Iterator[bytes]:
    for start in range(0, len(result.vectors), _ROWS_AT_ONCE):
        yield orjson.dumps(result.vectors[start : start + _ROWS_AT_ONCE], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


def npy_file(result: Result, dimension: int) -> bytes:
    """A NumPy file of float32 [n, dimension], little-endian; a failed item is a row of NaN.

    `dimension` is only used when no item has a vector.
    """
    vectors = result.vectors
    if vectors.shape[1] == 0:
        vectors = np.full((len(vectors), dimension), np.nan, dtype="<f4")
    file = io.BytesIO()
    np.lib.format.write_array(file, vectors.astype("<f4", copy=False), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _item(result: Result, index: int, *, base64: bool) -> dict[str, object]:
    error = result.errors.get(index)
    if error is not None:
        return {"object": "error", "index": index, "error": {"code": error.code, "message": error.message}}
    return rendering.item(index, result.vectors[index], base64=base64, truncated=index in result.truncated)
