"""How long callers wait."""

import pytest
from starlette.datastructures import Headers

from api.request.patience import patience_s, query_wait_s
from tasks.errors import InvalidValue


@pytest.mark.parametrize(
    ("announced", "expected_s"),
    [
        (None, 55),
        ("600", 55),
        ("30", 28),  # less what the way back takes
        ("3", 1.5),  # of a short timeout half
        ("none", 55),
        ("0", 55),  # Node's client cuts to whole seconds: it may have said anything below one
    ],
)
def test_patience_is_the_lesser_of_both_limits(announced: str | None, expected_s: float) -> None:
    headers = Headers({"x-stainless-read-timeout": announced} if announced else {})

    assert patience_s(headers, 55) == expected_s


def test_the_client_for_node_announces_its_time_under_another_name() -> None:
    assert patience_s(Headers({"x-stainless-timeout": "30"}), 55) == 28
    assert patience_s(Headers({"x-stainless-timeout": "30", "x-stainless-read-timeout": "12"}), 55) == 10


def test_the_wait_of_a_query() -> None:
    assert query_wait_s(None) == 0
    assert query_wait_s("0") == 0
    assert query_wait_s("2.5") == 2.5
    for text in ("", "x", "-1", "nan"):
        with pytest.raises(InvalidValue) as caught:
            query_wait_s(text)
        assert caught.value.param == "wait"
