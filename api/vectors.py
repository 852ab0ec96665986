"""Vectors as clients want them: OpenAI's list with floats or base64, or an `.npy` file. Straight from the buffer."""

import binascii
import io
from collections.abc import Iterator

import numpy as np
import orjson

from tasks.ledger import Result

NPY = "application/x-npy"
_ROWS_AT_ONCE = 32
"""Rows rendered in one call of orjson, which holds the interpreter lock: about 0.2 ms of 384 floats each."""


def size_bytes(result: Result) -> int:
    """Bytes of the vectors, as a measure of the work of rendering them."""
    return int(result.vectors.nbytes)


def embedding_list(result: Result, *, base64: bool) -> bytes:
    """OpenAI's embedding list in input order; a failed item is an object of type `error` in its place."""
    usage = {"prompt_tokens": result.task.prompt_tokens, "total_tokens": result.task.prompt_tokens}
    tail = orjson.dumps({"model": result.task.model, "usage": usage})
    rows = b",".join(_rows(result, base64=base64))
    return b'{"object":"list","data":[' + rows + b"]," + tail[1:]


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


def _rows(result: Result, *, base64: bool) -> Iterator[bytes]:
    total = result.task.total
    for start in range(0, total, _ROWS_AT_ONCE):
        items = [_item(result, index, base64=base64) for index in range(start, min(start + _ROWS_AT_ONCE, total))]
        yield orjson.dumps(items, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


def _item(result: Result, index: int, *, base64: bool) -> dict[str, object]:
    error = result.errors.get(index)
    if error is not None:
        return {"object": "error", "index": index, "error": {"code": error.code, "message": error.message}}
    row = result.vectors[index]
    # b2a_base64 takes the row's own memory; the text is ASCII by construction.
    embedding = binascii.b2a_base64(row, newline=False).decode("ascii") if base64 else row
    item: dict[str, object] = {"object": "embedding", "index": index, "embedding": embedding}
    if index in result.truncated:
        item["truncated"] = True
    return item
