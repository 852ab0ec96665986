"""The stage as a fixture."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.stack.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.stop()
