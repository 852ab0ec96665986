"""The judgement of the trials: what counts as lost, as doubled and as done in time."""

import numpy as np
import pytest

from bench.faults.callers import Account, expected_vectors
from bench.faults.rig import DIMENSION
from bench.overload import Outcome, counted

TEXTS = {"a": "one text", "b": "another text"}
A, B = expected_vectors(list(TEXTS.values()))
NONE = np.full(DIMENSION, np.nan, np.float32)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"a": [A], "b": [B]}, Account(2, completed=2), id="all right"),
        pytest.param({"a": [A]}, Account(2, completed=1, lost=1), id="one is missing"),
        pytest.param({"a": [A], "b": [NONE]}, Account(2, completed=1, lost=1), id="one has failed"),
        pytest.param({"a": [A, A], "b": [B]}, Account(2, completed=2, doubled=1), id="one came twice"),
        pytest.param({"a": [B], "b": [A]}, Account(2, doubled=2), id="each has the other's"),
        pytest.param({"a": [A, B], "b": []}, Account(2, completed=1, lost=1, doubled=1), id="one under another"),
    ],
)
def test_every_vector_is_compared(found: dict[str, list[object]], expected: Account) -> None:
    account = Account()
    account.add(TEXTS, found)
    assert account == expected


def test_goodput_is_what_was_done_while_its_caller_waited() -> None:
    rows = [
        (0.0, 1.0, 200),  # before the window
        (3.0, 2.0, 200),  # sent before it, answered in it
        (5.0, 1.0, 200),
        (5.0, 4.5, 200),  # too late
        (6.0, 4.0, 503),  # a caller who waited in vain
        (6.0, 0.1, 503),
        (7.0, 0.1, 429),
        (8.0, 0.0, 0),
        (13.5, 1.0, 200),  # answered behind the window
    ]
    share, *counts = counted([Outcome(*row) for row in rows], capacity_per_s=0.4, seconds=10)
    assert share == pytest.approx(0.5)
    assert counts == [7, 2, 2, 1]  # sent, refused, late, broken
