"""Tasks, vectors and errors as bytes."""

import io

import numpy as np
import orjson
import pytest

from api.error_responses import TextFailed, problem
from api.render_vectors import embedding_list, matrix, npy_file
from api.schemas.tasks import Task
from api.tei_errors import in_teis_form
from tasks import errors
from tasks.item import TextError
from tasks.ledger.task import Result, State
from tests.unit.api.tasks_and_results import a_result, a_task


def test_a_task_as_it_is_shown() -> None:
    body = Task.of(a_task()).model_dump()

    assert (body["created_at"], body["started_at"], body["finished_at"], body["expires_at"]) == (1, 2, None, 9)
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert body["metadata"] == {"k": "v"}
    codes = {State.COMPLETED: None, State.CANCELLED: None, State.FAILED: "all_items_failed", State.EXPIRED: "expired"}
    for state, code in codes.items():
        error = Task.of(a_task(state)).error
        assert (error and error.code) == code


def test_the_list_is_whole_whatever_its_length() -> None:
    for total in (1, 2, 31, 32, 33, 100):
        result = a_result(total)
        body = orjson.loads(embedding_list(result, base64=False))
        assert set(body) == {"object", "data", "model", "usage"}
        assert [item["index"] for item in body["data"]] == list(range(total))
        np.testing.assert_array_equal(np.array([i["embedding"] for i in body["data"]], "f4"), result.vectors)
        assert [item.get("truncated", False) for item in body["data"]] == [True] + [False] * (total - 1)
        np.testing.assert_array_equal(np.array(orjson.loads(matrix(result)), dtype=np.float32), result.vectors)


def test_a_failed_item_never_looks_like_a_vector() -> None:
    for packed in (False, True):
        body = orjson.loads(embedding_list(a_result(failed=1), base64=packed))
        assert body["data"][1] == {"object": "error", "index": 1, "error": {"code": "encoding_failed", "message": "no"}}
        assert len(body["data"]) == 3
    loaded = np.load(io.BytesIO(npy_file(a_result(failed=2), 2)), allow_pickle=False)
    assert np.isnan(loaded).all(axis=1).tolist() == [False, False, True]
    nothing = np.load(io.BytesIO(npy_file(Result(a_task(), []), 8)))
    assert (nothing.shape, np.isnan(nothing).all()) == ((3, 8), True)


def test_a_problem_reads_both_ways() -> None:
    response = problem(errors.Conflict("task_not_finished", "Wait.", param="id", retry_after_s=3), instance="/here")

    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.headers["retry-after"], response.headers["x-should-retry"]) == ("3", "true")
    assert orjson.loads(response.body) == {
        "type": "urn:embedq:error:task_not_finished",
        "title": "Task has not finished",
        "status": 409,
        "detail": "Wait.",
        "instance": "/here",
        "error": {"message": "Wait.", "type": "invalid_request_error", "param": "id", "code": "task_not_finished"},
    }


# ---- the forms of text-embeddings-inference -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (errors.Invalid("invalid_type", "no"), 422, "Validation"),
        (errors.Invalid("invalid_json", "no"), 422, "Validation"),
        (errors.Invalid("too_many_inputs", "no"), 422, "Validation"),
        (errors.Invalid("empty_input", "no"), 400, "Empty"),
        (errors.Unauthenticated("no"), 401, "Validation"),
        (errors.Refused("method_not_allowed", "no"), 405, "Validation"),
        (errors.Refused("body_too_large", "no"), 413, "Validation"),
        (errors.Refused("unsupported_media_type", "no"), 415, "Validation"),
        (TextFailed(0, TextError("input_too_long", "no")), 422, "Validation"),
        (TextFailed(0, TextError("non_finite_vector", "no")), 424, "Backend"),
        (errors.BacklogFull("no", retry_after_s=3), 429, "Overloaded"),
        (errors.StorageFull("no", retry_after_s=3), 429, "Overloaded"),
        (errors.WaitTimeout("no", retry_after_s=3), 429, "Overloaded"),
        (errors.RedisUnavailable("no", retry_after_s=3), 503, "Unhealthy"),
        (errors.NotReady("no", retry_after_s=3), 503, "Unhealthy"),
        (errors.InternalError("no"), 500, "Backend"),
    ],
)
def test_every_error_has_a_word_of_theirs(error: errors.EmbedqError, status: int, kind: str) -> None:
    told, body = in_teis_form(error)

    assert (told, body["error_type"]) == (status, kind)
    assert set(body) == {"error", "error_type"}


@pytest.mark.parametrize(
    ("param", "detail", "expected"),
    [
        ("input", "input is missing.", "inputs is missing."),
        ("inputs", "inputs is missing.", "inputs is missing."),
        ("input[3]", "input[3] is empty; input[3] it is.", "inputs[3] is empty; input[3] it is."),
        ("dimensions", "dimensions of an input.", "dimensions of an input."),
        (None, "input.", "input."),
    ],
)
def test_their_field_is_called_inputs(param: str | None, detail: str, expected: str) -> None:
    assert in_teis_form(errors.Invalid("invalid_value", detail, param=param))[1]["error"] == expected
