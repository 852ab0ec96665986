"""A scripted server for tests that are not asynchronous."""

from collections.abc import Iterator

import pytest

from tests.unit.embedq.scripted import Answer, Scripted, serving


@pytest.fixture
def elsewhere() -> Iterator[Scripted]:
    """Say in `answers` what it is to answer."""
    with serving(Answer(200, {})) as script:
        yield script
