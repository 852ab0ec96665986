"""Task ids, and which error an id gets that the ledger does not hold."""

import time
import uuid

import pytest

from api.submit import missing
from tasks.ledger import ids

RETENTION_S = 3600
HOUR_MS = 3_600_000


def id_of(at_ms: int) -> str:
    """An id as it would have been made at this moment."""
    fixed = 0x7 << 76 | 0x2 << 62 | 0x1234
    return f"task_{uuid.UUID(int=at_ms << 80 | fixed).hex}"


def test_a_new_id_tells_when_it_was_made() -> None:
    before_ms = time.time_ns() // 1_000_000
    made_ms = ids.created_ms(ids.new_task_id())
    assert made_ms is not None
    assert before_ms <= made_ms <= time.time_ns() // 1_000_000


def test_new_ids_differ_and_sort_by_age() -> None:
    made = [ids.new_task_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert made == sorted(made)


def test_an_id_past_its_retention_is_gone() -> None:
    old = id_of(time.time_ns() // 1_000_000 - 2 * HOUR_MS)
    error = missing(old, RETENTION_S)
    assert error.code == "task_expired"
    assert (error.status, error.code) == (410, "task_expired")


def test_a_young_id_that_is_not_there_is_unknown() -> None:
    error = missing(id_of(time.time_ns() // 1_000_000 - HOUR_MS // 2), RETENTION_S)
    assert error.code == "task_not_found"
    assert (error.status, error.code) == (404, "task_not_found")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task_",
        "task_0",
        "019a0000000070008000000000000000",
        "TASK_019a0000000070008000000000000000",
        "task_019a0000000040008000000000000000",
        "task_019a000000007000c000000000000000",
        "task_019a0000000070008000000000000000\n",
        "task_019A0000000070008000000000000000",
        "task_019a000000007000800000000000000",
        "task_\u066019a000000007000800000000000000",
        "../task_019a0000000070008000000000000000",
    ],
)
def test_what_is_no_id_of_ours_is_unknown(text: str) -> None:
    assert ids.created_ms(text) is None
    assert missing(text, RETENTION_S).code == "task_not_found"


def test_an_id_from_the_future_is_unknown() -> None:
    assert missing(id_of(2**47), RETENTION_S).code == "task_not_found"
