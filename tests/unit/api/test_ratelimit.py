"""The headers by which clients steer: from admission's own figures."""

import pytest

from api.load_limits import rate_limit_headers
from api.served_models import ServedModels
from tasks.ledger.key_limits import KeyRoom
from tests.unit.api.embedding_requests import MODEL, overview, served


def headers(models: ServedModels) -> dict[str, str]:
    return rate_limit_headers(models.room(MODEL), None, None)


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


def test_nothing_is_left_of_a_full_queue_and_an_unknown_one_has_admissions_own_rate() -> None:
    """Admission may let in more than this, as owners take turns; what is told is sure."""
    for online, owners, reset in ((9500, 2, "1m35s"), (9000, 1, "1m30s")):
        told = headers(served(overview(rate=100, online=online, owners=owners), max_backlog_s=30))
        assert (told["x-ratelimit-remaining-tokens"], told["x-ratelimit-reset-tokens"]) == ("0", reset)
    assert headers(served(max_backlog_s=30))["x-ratelimit-limit-tokens"] == "120000"
