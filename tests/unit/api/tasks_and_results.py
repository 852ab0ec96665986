"""A task and a result, as the ledger gives them."""

import numpy as np

from tasks.item import Options, TextError
from tasks.ledger.task import Lane, Result, State, StoredPiece, Task


def a_task(state: State = State.COMPLETED, total: int = 3) -> Task:
    return Task(
        id="task_1",
        queue="m",
        lane=Lane.ONLINE,
        owner="me",
        state=state,
        total=total,
        completed=total,
        failed=0,
        prompt_tokens=7,
        created_ms=1_999,
        started_ms=2_000,
        finished_ms=None,
        deadline_ms=None,
        expires_ms=9_999,
        options=Options(),
        metadata={"k": "v"},
    )


def a_result(total: int = 3, *, failed: int | None = None) -> Result:
    vectors = np.arange(total * 2, dtype="<f4").reshape(total, 2) / np.float32(3)
    failures = {} if failed is None else {failed: TextError("encoding_failed", "no")}
    if failed is not None:
        vectors[failed] = np.nan
    return Result(a_task(total=total), [StoredPiece(0, total, vectors.tobytes())], failures, frozenset({0}))
