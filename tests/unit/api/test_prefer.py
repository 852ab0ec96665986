"""What callers prefer, and how long they wait."""

import pytest
from starlette.datastructures import Headers

from api.request.prefer import Preference, applied, patience_s, preference, query_wait_s
from tasks.errors import InvalidValue


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], Preference()),
        (["respond-async"], Preference(respond_async=True)),
        (["Respond-Async, wait=10"], Preference(respond_async=True, wait_s=10)),
        (["respond-async", "wait=1.5"], Preference(respond_async=True, wait_s=1.5)),
        (['wait="20"; foo=bar'], Preference(wait_s=20)),
        (["wait=soon"], Preference()),
        (["wait=-1"], Preference()),
        (["wait=inf"], Preference()),
        (["wait"], Preference()),
        (["return=minimal, handling=lenient"], Preference()),
    ],
)
def test_preferences_are_hints(lines: list[str], expected: Preference) -> None:
    headers = Headers(raw=[(b"prefer", line.encode()) for line in lines])

    assert preference(headers) == expected


@pytest.mark.parametrize(
    ("announced", "wanted_s", "expected_s"),
    [
        (None, None, 55),
        (None, 10, 10),
        (None, 500, 55),
        ("600", None, 55),
        ("30", None, 28),  # less what the way back takes
        ("3", None, 1.5),  # of a short timeout half
        ("30", 5, 5),
        ("none", None, 55),
        ("0", None, 55),  # Node's client cuts to whole seconds: it may have said anything below one
        ("0", 0, 0),
    ],
)
def test_patience_is_the_least_of_all_limits(announced: str | None, wanted_s: float | None, expected_s: float) -> None:
    headers = Headers({"x-stainless-read-timeout": announced} if announced else {})

    assert patience_s(headers, wanted_s, 55) == expected_s


def test_the_client_for_node_announces_its_time_under_another_name() -> None:
    assert patience_s(Headers({"x-stainless-timeout": "30"}), None, 55) == 28
    assert patience_s(Headers({"x-stainless-timeout": "30", "x-stainless-read-timeout": "12"}), None, 55) == 10


@pytest.mark.parametrize(
    ("wishes", "wait_s", "expected"),
    [
        (Preference(respond_async=True), 55, "respond-async"),
        (Preference(respond_async=True, wait_s=2.5), 2.5, "respond-async, wait=2.5"),
        (Preference(respond_async=True, wait_s=100), 55, "respond-async"),
        (Preference(wait_s=10), 10, "wait=10"),
    ],
)
def test_what_was_applied_is_told(wishes: Preference, wait_s: float, expected: str) -> None:
    assert applied(wishes, wait_s) == expected


def test_the_wait_of_a_query() -> None:
    assert query_wait_s(None) is None
    assert query_wait_s("0") == 0
    assert query_wait_s("2.5") == 2.5
    for text in ("", "x", "-1", "nan"):
        with pytest.raises(InvalidValue) as caught:
            query_wait_s(text)
        assert caught.value.param == "wait"
