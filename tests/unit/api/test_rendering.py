"""Vectors and errors as bytes, in OpenAI's form and in that of text-embeddings-inference."""

import io

import numpy as np
import orjson
import pytest

from api.error_responses import TextFailed
from api.render_vectors import embedding_list, matrix, npy_file
from api.submit import task_of
from api.tei_errors import in_teis_form
from tasks import errors
from tasks.item import TextError
from tasks.ledger.task import NewPiece, Result, StoredPiece
from tests.ledger_builders import new_task


def a_result(total: int, *, failed: int | None = None) -> Result:
    vectors = np.arange(total * 2, dtype="<f4").reshape(total, 2) / np.float32(3)
    failures = {}
    if failed is not None:
        failures, vectors[failed] = {failed: TextError("encoding_failed", "no")}, np.nan
    task = task_of(new_task(pieces=(NewPiece(items=total, cost=1, payload=b""),)))
    return Result(task, [StoredPiece(0, total, vectors.tobytes())], failures, frozenset({0}))


@pytest.mark.parametrize("total", [1, 31, 32, 33, 100])
def test_the_list_is_whole_whatever_its_length(total: int) -> None:
    result = a_result(total)
    body = orjson.loads(embedding_list(result, base64=False))
    assert set(body) == {"object", "data", "model", "usage"}
    assert [item["index"] for item in body["data"]] == list(range(total))
    np.testing.assert_array_equal(np.array([i["embedding"] for i in body["data"]], "f4"), result.vectors)
    assert [item.get("truncated", False) for item in body["data"]] == [True] + [False] * (total - 1)
    np.testing.assert_array_equal(np.array(orjson.loads(matrix(result)), dtype=np.float32), result.vectors)


def test_a_failed_item_never_looks_like_a_vector() -> None:
    for packed in (False, True):
        body = orjson.loads(embedding_list(a_result(3, failed=1), base64=packed))
        assert body["data"][1] == {"object": "error", "index": 1, "error": {"code": "encoding_failed", "message": "no"}}
    loaded = np.load(io.BytesIO(npy_file(a_result(3, failed=2), 2)), allow_pickle=False)
    assert np.isnan(loaded).all(axis=1).tolist() == [False, False, True]
    nothing = np.load(io.BytesIO(npy_file(Result(a_result(3).task, []), 8)))
    assert (nothing.shape, np.isnan(nothing).all()) == ((3, 8), True)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.Invalid("invalid_type", "no"), 422, "Validation"),
        (errors.Invalid("empty_input", "no"), 400, "Empty"),
        (errors.Unauthenticated("no"), 401, "Validation"),
        (errors.Refused("body_too_large", "no"), 413, "Validation"),
        (errors.Refused("unsupported_media_type", "no"), 415, "Validation"),
        (TextFailed(0, TextError("input_too_long", "no")), 422, "Validation"),
        (TextFailed(0, TextError("non_finite_vector", "no")), 424, "Backend"),
        (errors.BacklogFull("no", retry_after_s=3), 429, "Overloaded"),
        (errors.StorageFull("no", retry_after_s=3), 429, "Overloaded"),
        (errors.WaitTimeout("no", retry_after_s=3), 429, "Overloaded"),
        (errors.RedisUnavailable("no", retry_after_s=3), 503, "Unhealthy"),
        (errors.InternalError("no"), 500, "Backend"),
    ],
)
def test_every_error_has_a_word_of_tei(error: errors.EmbedqError, status: int, kind: str) -> None:
    told, body = in_teis_form(error)
    assert (told, body["error_type"]) == (status, kind)


@pytest.mark.parametrize(
    ("param", "detail", "expected"),
    [
        ("input", "input is missing.", "inputs is missing."),
        ("input[3]", "input[3] is empty; input[3] it is.", "inputs[3] is empty; input[3] it is."),
        ("dimensions", "dimensions of an input.", "dimensions of an input."),
    ],
)
def test_the_field_of_tei_is_called_inputs(param: str, detail: str, expected: str) -> None:
    assert in_teis_form(errors.Invalid("invalid_value", detail, param=param))[1]["error"] == expected
