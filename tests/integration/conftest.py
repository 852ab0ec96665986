"""Every integration test starts on an empty Redis and may leave only keys that expire."""

import pytest


@pytest.fixture(autouse=True)
def _key_leak_check(redis_url: str) -> None:
    """`redis_url` empties and checks; here it is asked for on behalf of tests that do not name it."""
