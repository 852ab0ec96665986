"""Tables of which a run of all tests compares a few rows, and `make thorough` each one."""

from collections.abc import Iterable
from typing import Any

import pytest


def some(rows: Iterable[Any], *routine: Any) -> list[Any]:
    """All rows as parameters, a tuple as several; those that are not `routine` are for `make thorough`."""
    return [row if row in routine else _dear(*row) if isinstance(row, tuple) else _dear(row) for row in rows]


def _dear(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.thorough)
