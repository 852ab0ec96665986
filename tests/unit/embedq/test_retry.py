"""Decisions about repetitions, as tables."""

import pytest

from embedq.retry import RetryPolicy

POLICY = RetryPolicy(first_delay_s=0.25, max_delay_s=8, first_contact_s=2, unreachable_s=30)


@pytest.mark.parametrize(
    ("status", "headers", "attempt", "delay_s"),
    [
        (503, {"retry-after": "7"}, 0, 7),
        (503, {"retry-after": "0"}, 3, 0),
        (503, {"x-should-retry": "true", "retry-after": "2"}, 5, 2),
        (503, {"x-should-retry": "false", "retry-after": "2"}, 0, None),
        (503, {}, 0, 0.25),
        (503, {}, 2, 1),
        (503, {}, 10_000, 8),
        (503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 1, 0.5),
        (503, {"retry-after": "-5"}, 1, 0.5),
        (503, {"retry-after": "²"}, 0, 0.25),
        (429, {"retry-after": "120"}, 0, 120),
        (409, {"retry-after": "3"}, 0, None),
        (409, {"x-should-retry": "true", "retry-after": "3"}, 0, 3),
        (409, {"x-should-retry": "false"}, 0, None),
        (502, {}, 0, 0.25),
        (504, {}, 0, 0.25),
        (408, {}, 0, 0.25),
        (400, {"retry-after": "1"}, 0, None),
        (404, {}, 0, None),
        (422, {}, 0, None),
        (500, {}, 0, None),
    ],
)
def test_after_an_error_answer(status: int, headers: dict[str, str], attempt: int, delay_s: float | None) -> None:
    assert POLICY.after_answer(status, headers, attempt) == delay_s


@pytest.mark.parametrize(
    ("silent_s", "answered_before", "attempt", "delay_s"),
    [
        (0.0, False, 0, 0.25),
        (1.7, False, 0, 0.25),
        (1.8, False, 0, None),  # the next attempt would come after two seconds
        (1.8, True, 0, 0.25),
        (21.9, True, 9, 8),
        (22.1, True, 9, None),
    ],
)
def test_after_silence(silent_s: float, *, answered_before: bool, attempt: int, delay_s: float | None) -> None:
    assert POLICY.after_silence(silent_s, answered_before=answered_before, attempt=attempt) == delay_s
