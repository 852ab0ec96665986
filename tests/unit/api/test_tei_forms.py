"""Errors and vectors in the forms of text-embeddings-inference."""

import numpy as np
import orjson
import pytest

from api.error_responses import TextFailed, tei_failure
from api.render_vectors import matrix
from tasks import errors
from tasks.item import TextError
from tests.unit.api.tasks_and_results import a_result


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
    answer = tei_failure(error)

    body = orjson.loads(answer.body)
    assert (answer.status_code, body["error_type"]) == (status, kind)
    assert set(body) == {"error", "error_type"}
    assert answer.headers.get("retry-after") == ("3" if status in {429, 503} else None)


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
    assert orjson.loads(tei_failure(errors.Invalid("invalid_value", detail, param=param)).body)["error"] == expected


@pytest.mark.parametrize("total", [1, 32, 33, 70])
def test_vectors_are_a_list_of_lists(total: int) -> None:
    result = a_result(total)

    np.testing.assert_array_equal(np.array(orjson.loads(matrix(result)), dtype=np.float32), result.vectors)
