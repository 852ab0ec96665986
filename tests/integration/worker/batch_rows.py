"""A batch's embed task as the documents worker would submit it, and what became of its rows."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.ingestion.rows_writer import new_pieces, writing_rows
from tasks.item import Options, Vector
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import read_result
from tasks.ledger.submit import submit
from tasks.ledger.task import Admission, Lane, NewTask
from tasks.storage.rows_file import row_of
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import VectorsReference, read_vectors
from tests.ledger_client import LedgerClient

_numbers = itertools.count(1)


def submit_rows(
    client: LedgerClient,
    storage: Storage,
    texts: Sequence[str | tuple[str, dict[str, Any]]],
    *,
    unit_rows: int = 4,
    cost: int = 100,
    written: Callable[[str], object] = lambda _: None,
) -> str:
    """Stores rows of texts, some with options, and a task of units that refer to them; its id.

    `written`: happens before there is a task; it gets the name of the object.
    """
    name = f"anonymous/batch_{next(_numbers)}/1.rows.0"
    with writing_rows(storage, name) as rows:
        for text in texts:
            rows.add(row_of(text, {}) if isinstance(text, str) else row_of(*text), 1, unit_rows)
    written(name)
    pieces = [replace(piece, cost=cost) for piece in new_pieces(name, rows.pieces)]
    submission = NewTask(
        task_id=new_task_id(),
        queue=client.model,
        lane=Lane.BULK,
        owner="anonymous",
        pieces=pieces,
        options=Options(),
        ttl_ms=600_000,
        admission=Admission(max_backlog_s=1e6),
    )
    return client.ledger.run(submit(submission)).task_id


def outcomes(client: LedgerClient, storage: Storage, task_id: str) -> dict[int, Vector]:
    """The rows that stand in parts, by their number. Fails when one stands there twice."""
    committed = client.ledger.run(read_result(task_id))
    assert committed is not None
    rows: dict[int, Vector] = {}
    for piece in committed.pieces:
        part = read_vectors(storage, VectorsReference.from_json(piece.data))
        assert len(part) == piece.items
        for number, row in enumerate(part, piece.first):
            assert number not in rows
            rows[number] = row
    return rows


def inline(client: LedgerClient, texts: list[str], options: Options | None = None) -> npt.NDArray[np.float32]:
    """Vectors of the same texts, sent as texts."""
    return client.completed(client.submit(texts, options=options)).vectors
