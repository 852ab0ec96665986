"""Tables of which a run of all tests compares a few rows, and `make thorough` each one."""

from collections.abc import Collection
from typing import Any

import pytest


def some(rows: Collection[Any], *routine: Any) -> list[Any]:
    """All rows as parameters, a tuple as several; those that are not `routine` are for `make thorough`."""
    dear = [row if isinstance(row, tuple) else (row,) for row in rows]
    return [
        row if row in routine else pytest.param(*values, marks=pytest.mark.thorough)
        for row, values in zip(rows, dear, strict=True)
    ]
