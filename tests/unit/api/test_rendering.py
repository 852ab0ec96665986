"""Tasks, vectors and errors as bytes."""

import base64
import io

import numpy as np
import orjson
import pytest

from api.error_responses import TextFailed, problem
from api.render_vectors import embedding_list, npy_file
from api.schemas.tasks import Task
from tasks import errors
from tasks.item import TextError
from tasks.ledger.task import Result, State
from tests.unit.api.tasks_and_results import a_result, a_task


def test_times_are_whole_seconds() -> None:
    body = Task.of(a_task()).model_dump()

    assert (body["created_at"], body["started_at"], body["finished_at"], body["expires_at"]) == (1, 2, None, 9)
    assert body["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert body["metadata"] == {"k": "v"}


@pytest.mark.parametrize(
    ("state", "code"),
    [(State.COMPLETED, None), (State.CANCELLED, None), (State.FAILED, "all_items_failed"), (State.EXPIRED, "expired")],
)
def test_the_error_of_a_task(state: State, code: str | None) -> None:
    error = Task.of(a_task(state)).error

    assert (error and error.code) == code


@pytest.mark.parametrize("total", [1, 2, 31, 32, 33, 100])
def test_the_list_is_whole_whatever_its_length(total: int) -> None:
    result = a_result(total)

    body = orjson.loads(embedding_list(result, base64=False))

    assert set(body) == {"object", "data", "model", "usage"}
    assert [item["index"] for item in body["data"]] == list(range(total))
    np.testing.assert_array_equal(np.array([i["embedding"] for i in body["data"]], "f4"), result.vectors)
    assert [item.get("truncated", False) for item in body["data"]] == [True] + [False] * (total - 1)


def test_base64_is_little_endian_float32() -> None:
    result = a_result()

    body = orjson.loads(embedding_list(result, base64=True))

    decoded = [np.frombuffer(base64.b64decode(item["embedding"], validate=True), "<f4") for item in body["data"]]
    np.testing.assert_array_equal(np.stack(decoded), result.vectors)


@pytest.mark.parametrize("packed", [False, True])
def test_a_failed_item_never_looks_like_a_vector(packed: bool) -> None:
    body = orjson.loads(embedding_list(a_result(failed=1), base64=packed))

    assert body["data"][1] == {"object": "error", "index": 1, "error": {"code": "encoding_failed", "message": "no"}}
    assert len(body["data"]) == 3


def test_npy() -> None:
    result = a_result(failed=2)

    loaded = np.load(io.BytesIO(npy_file(result, 2)), allow_pickle=False)

    assert loaded.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(loaded, result.vectors)
    assert np.isnan(loaded[2]).all()


def test_npy_without_any_vector_still_has_its_shape() -> None:
    result = Result(a_task(), [])

    loaded = np.load(io.BytesIO(npy_file(result, 8)))

    assert loaded.shape == (3, 8)
    assert np.isnan(loaded).all()


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


@pytest.mark.parametrize(
    ("code", "status"), [("input_too_long", 400), ("invalid_dimensions", 400), ("anything_else", 422)]
)
def test_an_items_error_as_the_answer_to_a_request(code: str, status: int) -> None:
    response = problem(TextFailed(5, TextError(code, "Too bad.")), instance="/")

    error = orjson.loads(response.body)["error"]
    assert response.status_code == status
    assert (error["code"], error["param"]) == (code, "input[5]")
    assert response.headers["x-should-retry"] == "false"
