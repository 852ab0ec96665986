"""Errors in the form of text-embeddings-inference."""

import pytest

from api.error_responses import TextFailed
from api.tei_errors import in_teis_form
from tasks import errors
from tasks.item import TextError


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
