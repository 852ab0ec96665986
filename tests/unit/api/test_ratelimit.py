"""The headers by which clients steer: from admission's own figures."""

import pytest

from api.answer.rate_limit_headers import RateLimits, go_duration
from tests.unit.api.embedding_requests import MODEL, overview, requests


def headers(limits: RateLimits) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in limits.headers(MODEL, "me")}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (0.01, "1s"), (59, "59s"), (59.5, "1m0s"), (360, "6m0s"), (3600, "1h0m0s"), (86_399, "23h59m59s")],
)
def test_durations_as_go_reads_them(seconds: float, expected: str) -> None:
    assert go_duration(seconds) == expected


def test_what_may_wait_and_what_is_left_of_it() -> None:
    limits = RateLimits(requests(overview(rate=100, online=1234), max_backlog_s=30).registry)

    assert headers(limits) == {
        "x-ratelimit-limit-requests": "3000",
        "x-ratelimit-remaining-requests": "1766",
        "x-ratelimit-reset-requests": "13s",
        "x-ratelimit-limit-tokens": "3000",
        "x-ratelimit-remaining-tokens": "1766",
        "x-ratelimit-reset-tokens": "13s",
    }


def test_what_others_have_queued_counts_as_far_as_it_goes_first() -> None:
    registry = requests(overview(rate=100, online=500, others={"a": 9000}), max_backlog_s=30).registry
    limits = RateLimits(registry)

    assert headers(limits)["x-ratelimit-remaining-tokens"] == "1000"  # half of the limit, less its own
    assert headers(limits)["x-ratelimit-reset-tokens"] == "10s"
    registry.update({MODEL: overview(rate=100, online=500, others={"a": 100})})
    assert headers(limits)["x-ratelimit-remaining-tokens"] == "2400"


def test_more_may_be_queued_than_the_limit_because_an_empty_queue_takes_any_task() -> None:
    limits = RateLimits(requests(overview(rate=100, online=9000), max_backlog_s=30).registry)

    assert headers(limits)["x-ratelimit-remaining-tokens"] == "0"
    assert headers(limits)["x-ratelimit-reset-tokens"] == "1m30s"


def test_they_are_made_once_for_each_look_at_the_ledger() -> None:
    registry = requests(overview(rate=100, online=0)).registry
    limits = RateLimits(registry)
    first = limits.headers(MODEL, "me")

    assert limits.headers(MODEL, "me") is first
    registry.update({MODEL: overview(rate=100, online=500)})
    assert headers(limits)["x-ratelimit-remaining-tokens"] == "2500"


def test_before_anything_is_known_the_rate_is_admissions_own_guess() -> None:
    limits = RateLimits(requests(max_backlog_s=30).registry)

    assert headers(limits)["x-ratelimit-limit-tokens"] == "120000"
