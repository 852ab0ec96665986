"""Task ids, and which error an id gets that the ledger does not hold."""

import time
import uuid

import pytest

from api.submit import missing
from tasks.ledger import ids

HOUR_S = 3600


def id_of(age_s: float) -> str:
    """An id as it would have been made so long ago."""
    fixed = 0x7 << 76 | 0x2 << 62 | 0x1234
    return f"task_{uuid.UUID(int=int(1000 * (time.time() - age_s)) << 80 | fixed).hex}"


def test_new_ids_differ_and_sort_by_age() -> None:
    made = [ids.new_task_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert made == sorted(made)


@pytest.mark.parametrize(
    ("age_s", "status", "code"), [(2 * HOUR_S, 410, "task_expired"), (HOUR_S / 2, 404, "task_not_found")]
)
def test_an_id_past_its_retention_is_gone(age_s: float, status: int, code: str) -> None:
    error = missing(id_of(age_s), HOUR_S)
    assert (error.status, error.code) == (status, code)


@pytest.mark.parametrize(
    "text",
    [
        *("", "task_", "task_0", "019a0000000070008000000000000000", "TASK_019a0000000070008000000000000000"),
        *("task_019a0000000040008000000000000000", "task_019a000000007000c000000000000000"),
        *("task_019a0000000070008000000000000000\n", "task_019A0000000070008000000000000000"),
        *("task_019a000000007000800000000000000", "task_\u066019a000000007000800000000000000"),
        "../task_019a0000000070008000000000000000",
    ],
)
def test_what_is_no_id_of_ours_is_unknown(text: str) -> None:
    assert ids.created_ms(text) is None
    assert missing(text, HOUR_S).code == "task_not_found"
