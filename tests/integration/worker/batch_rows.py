"""A batch's embed task as the documents worker would submit it, and what became of its rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.item import Options, Vector
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import read_result
from tasks.ledger.submit import submit
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask
from tasks.storage.row_file import RowReference, row_of, writing_rows
from tasks.storage.storage import Storage
from tasks.storage.vector_part import PartReference, read_part
from tests.ledger_client import LedgerClient

BATCH = "batches/batch_1"


def submit_rows(
    client: LedgerClient,
    storage: Storage,
    texts: Sequence[str | tuple[str, dict[str, Any]]],
    *,
    unit_rows: int = 4,
    cost: int = 100,
) -> str:
    """Stores rows of texts, some with options, and a task of units that refer to them; its id."""
    with writing_rows(storage, "files/file-1", f"{BATCH}/index.0") as rows:
        for text in texts:
            rows.add(row_of(text, {}) if isinstance(text, str) else row_of(*text))
    pieces = [
        NewPiece(
            items=min(unit_rows, len(texts) - first),
            cost=cost,
            payload=RowReference("files/file-1", f"{BATCH}/index.0", first).to_payload(),
        )
        for first in range(0, len(texts), unit_rows)
    ]
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
        part = read_part(storage, PartReference.from_json(piece.data))
        assert len(part) == piece.items
        for number, row in enumerate(part, piece.first):
            assert number not in rows
            rows[number] = row
    return rows


def inline(client: LedgerClient, texts: list[str], options: Options | None = None) -> npt.NDArray[np.float32]:
    """Vectors of the same texts, sent as texts."""
    return client.completed(client.submit(texts, options=options)).vectors
