"""From the flat replies of scripts to tasks and results."""

from typing import Any

import numpy as np
import pytest

from tasks.item import Options, TextError
from tasks.ledger import ClaimedUnit, Finished, Lane, OutcomeKind, State, replies

NOW_MS = 1_900_000_000_000


def flat(**changed: object) -> list[bytes]:
    """The hash of a task of four items as Redis replies it."""
    fields: dict[str, object] = {
        "q": "m",
        "lane": "bulk",
        "owner": "someone",
        "state": "in_progress",
        "total": 4,
        "completed": 0,
        "failed": 0,
        "created": NOW_MS - 500,
    } | changed
    return [part for name, value in fields.items() for part in (name.encode(), str(value).encode())]


def reply(stored: dict[str, bytes] | None = None, *, pttl: int = -1, meta: bytes = b"", **changed: object) -> list[Any]:
    parts = [part for name, value in (stored or {}).items() for part in (name.encode(), value)]
    return [flat(**changed), pttl, meta, NOW_MS, parts]


def rows(*values: float) -> bytes:
    return np.array([[v, v] for v in values], dtype="<f4").tobytes()


def extra(errors: dict[int, TextError], truncated: list[int]) -> bytes:
    unit = ClaimedUnit("t", "0", 0, 1, 1, 1, 0, Options(), b"[]")
    return Finished(unit=unit, kind=OutcomeKind.VECTORS, outcome=b"", errors=errors, truncated=truncated).extra()


def test_an_unknown_task_is_none() -> None:
    unknown: list[Any] = [[], -2, b"", NOW_MS, []]
    assert replies.task_from_reply("t", unknown) is None
    assert replies.result_from_reply("t", unknown) is None


def test_a_young_task_has_what_it_needs_and_none_for_the_rest() -> None:
    task = replies.task_from_reply("t", reply(state="queued"))
    assert task is not None
    assert (task.id, task.queue, task.lane, task.owner, task.state) == ("t", "m", Lane.BULK, "someone", State.QUEUED)
    assert (task.started_ms, task.finished_ms, task.deadline_ms, task.expires_ms) == (None, None, None, None)
    assert (task.prompt_tokens, task.options, task.metadata) == (0, Options(), None)


def test_an_ended_task_says_when_it_will_be_forgotten() -> None:
    task = replies.task_from_reply(
        "t", reply(pttl=1500, state="completed", started=7, finished=8, deadline=9, tokens=11)
    )
    assert task is not None
    assert (task.started_ms, task.finished_ms, task.deadline_ms, task.prompt_tokens) == (7, 8, 9, 11)
    assert task.expires_ms == NOW_MS + 1500


def test_options_and_metadata_are_read_back() -> None:
    options = Options(dimensions=64, normalize=False)
    task = replies.task_from_reply("t", reply(meta=b'{"k":"v"}', options=options.to_text()))
    assert task is not None
    assert (task.options, task.metadata) == (options, {"k": "v"})


def test_parts_are_put_in_input_order_whatever_order_they_come_in() -> None:
    stored = {"v3+1": rows(3), "v0+1": rows(0), "v1+2": rows(1, 2)}
    result = replies.result_from_reply("t", reply(stored, state="completed"))
    assert result is not None
    assert result.vectors.dtype == np.float32
    assert result.vectors.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert not result.errors


def test_what_is_missing_of_an_open_task_is_nan_and_no_error() -> None:
    result = replies.result_from_reply("t", reply({"v1+2": rows(1, 2)}))
    assert result is not None
    assert np.isnan(result.vectors).all(axis=1).tolist() == [True, False, False, True]
    assert result.errors == {}


@pytest.mark.parametrize(
    ("state", "code"), [("cancelled", "cancelled"), ("expired", "expired"), ("completed", "internal_error")]
)
def test_what_is_missing_of_an_ended_task_has_the_error_of_its_end(state: str, code: str) -> None:
    result = replies.result_from_reply("t", reply({"v1+2": rows(1, 2)}, state=state))
    assert result is not None
    assert {index: error.code for index, error in result.errors.items()} == {0: code, 3: code}
    assert np.isnan(result.vectors[[0, 3]]).all()


def test_a_failed_item_keeps_its_own_error_and_a_row_of_nan() -> None:
    boom = TextError("boom", "it did not work")
    stored = {"v0+4": rows(0, float("nan"), 2, 3), "x0": extra({1: boom}, [2, 3])}
    result = replies.result_from_reply("t", reply(stored, state="cancelled"))
    assert result is not None
    assert result.errors == {1: boom}
    assert result.truncated == {2, 3}
    assert np.isnan(result.vectors).all(axis=1).tolist() == [False, True, False, False]


def test_a_task_without_a_single_vector_has_dimension_0() -> None:
    boom = TextError("boom", "it did not work")
    result = replies.result_from_reply("t", reply({"x0": extra(dict.fromkeys(range(4), boom), [])}, state="failed"))
    assert result is not None
    assert result.vectors.shape == (4, 0)
    assert set(result.errors) == {0, 1, 2, 3}


def test_vectors_are_not_tied_to_the_reply() -> None:
    result = replies.result_from_reply("t", reply({"v0+4": rows(0, 1, 2, 3)}))
    assert result is not None
    result.vectors[0] = 5
    assert result.vectors[0].tolist() == [5, 5]
