"""OpenAI's list of embeddings, straight from float32 buffers: for answers and for the lines of batches. Pure."""

import binascii
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import orjson

_ROWS_AT_ONCE = 32
"""Rows rendered in one call of orjson, which holds the interpreter lock: about 0.2 ms of 384 floats each."""


def item(index: int, row: npt.NDArray[np.float32], *, base64: bool, truncated: bool) -> dict[str, object]:
    """One entry of the list, for orjson with NumPy. `row` is little-endian float32 [d]."""
    # b2a_base64 takes the row's own memory; the text is ASCII by construction.
    embedding: object = binascii.b2a_base64(row.data, newline=False).decode("ascii") if base64 else row
    entry: dict[str, object] = {"object": "embedding", "index": index, "embedding": embedding}
    if truncated:
        entry["truncated"] = True
    return entry


def items(
    vectors: Iterable[npt.NDArray[np.float32]], *, base64: bool, truncated: Collection[int] = ()
) -> Iterator[dict[str, object]]:
    """Entries of all vectors, each float32 [d], in order."""
    for index, row in enumerate(vectors):
        yield item(index, row, base64=base64, truncated=index in truncated)


def embedding_list(entries: Iterable[dict[str, object]], *, model: str, tokens: int) -> bytes:
    """The list as JSON. Between two pieces of it other threads get the interpreter."""
    tail = orjson.dumps({"model": model, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
    waiting, pieces = iter(entries), []
    while group := list(islice(waiting, _ROWS_AT_ONCE)):
        pieces.append(orjson.dumps(group, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
    return b'{"object":"list","data":[' + b",".join(pieces) + b"]," + tail[1:]
