"""Rows in the storage: whatever dies or is away, each has its vector once."""

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tasks.item import Vector
from tasks.ledger.read import read_result
from tasks.ledger.task import Lane, State
from tasks.storage.storage import Storage
from tests.integration.worker.batch_rows import inline, outcomes, submit_rows
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / ".embedq" / "storage"))


def vector_of(row: Vector) -> npt.NDArray[np.float32]:
    assert row.vector is not None, row.error
    return row.vector


def test_a_row_that_kills_its_worker_fails_alone(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    texts = [f"text {n}" for n in range(6)]
    texts[2] = "!!kill!!"
    task_id = submit_rows(client, storage, texts, unit_rows=6)
    roles.worker(start=False, lease_s=1).launch()
    task = client.ended(task_id)
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 5, 1)
    committed = client.ledger.run(read_result(task_id))
    assert committed is not None
    assert {index: error.code for index, error in committed.stored_errors.items()} == {2: "worker_lost"}
    rows = outcomes(client, storage, task_id)
    expected = inline(client, [text for text in texts if text != "!!kill!!"])
    assert np.array_equal(np.stack([vector_of(rows[n]) for n in sorted(rows)]), expected)


def test_every_row_is_committed_once_across_kills(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    task_id = submit_rows(client, storage, [f"text {n} " + "word " * 30 for n in range(120)])
    worker = roles.worker(fake_tokens_per_s=2000, lease_s=2)
    for rows_done in (4, 40):
        wait_until(partial(_has_done, client, task_id, rows_done), message="some rows")
        assert not client.task(task_id).state.terminal
        worker.kill_child()
    assert client.ended(task_id).state is State.COMPLETED
    assert sorted(outcomes(client, storage, task_id)) == list(range(120))
    assert client.counter("committed_items") == 120


def _has_done(client: LedgerClient, task_id: str, rows: int) -> bool:
    return client.task(task_id).completed >= rows


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
