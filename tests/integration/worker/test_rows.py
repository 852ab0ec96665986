"""Rows in the storage: whatever dies or is away, each has its vector once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tasks.ingestion.rows_writer import new_pieces, writing_rows
from tasks.item import Vector
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import read_result
from tasks.ledger.submit import submit
from tasks.ledger.task import Lane, Result, State
from tasks.storage.rows_file import row_of
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import VectorsReference, read_vectors
from tests.ledger_builders import new_task
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / ".embedq" / "storage"))


def submit_rows(
    client: LedgerClient,
    storage: Storage,
    texts: Sequence[str],
    *,
    name: str = "anonymous/batch_1/1.rows.0",
    rows_of_piece: int = 4,
    written: Callable[[str], object] = lambda _: None,
) -> str:
    """Stores rows, and a task of pieces that refer to them, as the documents worker does for a batch; its id.

    `written`: happens before there is a task; it gets the name of the object.
    """
    with writing_rows(storage, name) as rows:
        for text in texts:
            rows.add(row_of(text, {}), 1, rows_of_piece)
    written(name)
    pieces = [replace(piece, cost=100) for piece in new_pieces(name, rows.pieces)]
    task = new_task(task_id=new_task_id(), queue=client.model, lane=Lane.BULK, pieces=pieces)
    return client.ledger.run(submit(task)).task_id


def committed(client: LedgerClient, task_id: str) -> Result:
    found = client.ledger.run(read_result(task_id))
    assert found is not None
    return found


def outcomes(client: LedgerClient, storage: Storage, task_id: str) -> dict[int, Vector]:
    """The rows that stand in parts, by their number. Fails when one stands there twice."""
    rows: dict[int, Vector] = {}
    for piece in committed(client, task_id).pieces:
        part = read_vectors(storage, VectorsReference.from_json(piece.data))
        assert len(part) == piece.items
        for number, row in enumerate(part, piece.first):
            assert number not in rows
            rows[number] = row
    return rows


def test_a_row_that_kills_its_worker_fails_alone(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    texts = [f"text {n}" for n in range(6)]
    texts[2] = "!!kill!!"
    task_id = submit_rows(client, storage, texts, rows_of_piece=6)
    roles.worker(start=False, lease_s=1, streams=1).launch()
    task = client.ended(task_id)
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 5, 1)
    errors = committed(client, task_id).stored_errors
    assert {index: error.code for index, error in errors.items()} == {2: "worker_lost"}
    rows = outcomes(client, storage, task_id)
    inline = client.completed(client.submit([text for text in texts if text != "!!kill!!"])).vectors
    found = [vector for number in sorted(rows) if (vector := rows[number].vector) is not None]
    assert np.array_equal(np.stack(found), inline)

    gone = submit_rows(client, storage, ["a text"], name="anonymous/batch_2/1.rows.0", written=storage.delete)
    assert client.ended(gone).failed == 1
    error = outcomes(client, storage, gone)[0].error
    assert error is not None
    assert (error.code, "no longer in the storage" in error.message) == ("not_stored", True)

    large = [f"number {n} " + "word " * 450_000 for n in range(12)]
    task_id = submit_rows(client, storage, large, name="anonymous/batch_3/1.rows.0")
    assert client.ended(task_id).state is State.COMPLETED
    parts = {VectorsReference.from_json(piece.data).vectors for piece in committed(client, task_id).pieces}
    assert len(parts) == 3, "many megabytes are done in portions"


def test_every_row_is_committed_once_across_kills(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    def has_done(rows: int) -> bool:
        return client.task(task_id).completed >= rows

    task_id = submit_rows(client, storage, [f"text {n} " + "word " * 30 for n in range(120)])
    worker = roles.worker(fake_tokens_per_s=2000, lease_s=2)
    for least in (4, 40):
        wait_until(partial(has_done, least), message="some rows")
        assert not client.task(task_id).state.terminal
        worker.kill_child()
    assert client.ended(task_id).state is State.COMPLETED
    assert sorted(outcomes(client, storage, task_id)) == list(range(120))
    assert client.counter("committed_items") == 120


def test_a_storage_that_is_away_costs_nothing_but_time(
    roles: Roles, client: LedgerClient, storage: Storage, tmp_path: Path
) -> None:
    folder, elsewhere = tmp_path / ".embedq" / "storage", tmp_path / "unmounted"
    task_id = submit_rows(client, storage, [f"text {n}" for n in range(8)])
    folder.rename(elsewhere)
    folder.write_bytes(b"")  # neither there nor to be made again
    roles.worker(lease_s=2)
    wait_until(lambda: client.overview().storage_outage, message="a worker says that it is away")
    client.completed(client.submit(["online"]))
    client.completed(client.submit(["bulk"], lane=Lane.BULK))
    assert client.task(task_id).completed == 0
    folder.unlink()
    elsewhere.rename(folder)
    task = client.ended(task_id)
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 8, 0)
    assert client.counter("lost_leases") == 0
