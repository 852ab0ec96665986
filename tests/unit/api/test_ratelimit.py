"""The headers by which clients steer: from admission's own figures."""

import pytest

from api.request_limits import rate_limit_headers
from api.served_models import ServedModels
from tasks.ledger.submit import KeyRoom
from tests.unit.api.embedding_requests import MODEL, overview, served


def headers(models: ServedModels) -> dict[str, str]:
    return rate_limit_headers(models.room(MODEL, "me"), None, None)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (0.01, "1s"), (59, "59s"), (59.5, "1m0s"), (360, "6m0s"), (3600, "1h0m0s"), (86_399, "23h59m59s")],
)
def test_durations_as_go_reads_them(seconds: float, expected: str) -> None:
    assert rate_limit_headers(KeyRoom(9, 9, seconds), None, None)["x-ratelimit-reset-tokens"] == expected


def test_what_may_wait_and_what_is_left_of_it() -> None:
    limits = served(overview(rate=100, online=1234), max_backlog_s=30)

    assert headers(limits) == {
        "x-ratelimit-limit-requests": "3000",
        "x-ratelimit-remaining-requests": "1766",
        "x-ratelimit-reset-requests": "13s",
        "x-ratelimit-limit-tokens": "3000",
        "x-ratelimit-remaining-tokens": "1766",
        "x-ratelimit-reset-tokens": "13s",
    }


def test_what_others_have_queued_counts_as_far_as_it_goes_first() -> None:
    limits = served(overview(rate=100, online=500, others={"a": 9000}), max_backlog_s=30)

    assert headers(limits)["x-ratelimit-remaining-tokens"] == "1000"  # half of the limit, less its own
    assert headers(limits)["x-ratelimit-reset-tokens"] == "10s"
    limits.update({MODEL: overview(rate=100, online=500, others={"a": 100})})
    assert headers(limits)["x-ratelimit-remaining-tokens"] == "2400"


def test_more_may_be_queued_than_the_limit_because_an_empty_queue_takes_any_task() -> None:
    limits = served(overview(rate=100, online=9000), max_backlog_s=30)

    assert headers(limits)["x-ratelimit-remaining-tokens"] == "0"
    assert headers(limits)["x-ratelimit-reset-tokens"] == "1m30s"


def test_before_anything_is_known_the_rate_is_admissions_own_guess() -> None:
    limits = served(max_backlog_s=30)

    assert headers(limits)["x-ratelimit-limit-tokens"] == "120000"
