"""Tables of which a run of all tests compares a few rows, and `make thorough` each one."""

from collections.abc import Iterable
from typing import Any

import pytest


def some(rows: Iterable[Any], *routine: Any) -> list[Any]:
    """All rows as parameters; those that are not `routine` are for `make thorough`."""
    return [row if row in routine else pytest.param(row, marks=pytest.mark.thorough) for row in rows]
