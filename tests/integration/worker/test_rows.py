"""Units by reference through a real worker: the same vectors as of texts sent inline, whatever dies or is away."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tasks.item import Options, Vector
from tasks.ledger.read import read_result
from tasks.ledger.task import Lane, State
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import VectorsReference
from tests.integration.worker.batch_rows import BATCH, inline, outcomes, submit_rows
from tests.ledger_client import LedgerClient
from tests.processes import Roles, wait_until


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / ".embedq" / "storage"))


def vector_of(row: Vector) -> npt.NDArray[np.float32]:
    assert row.vector is not None, row.error
    return row.vector


def test_rows_get_the_vectors_of_their_texts(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    texts: list[str | tuple[str, dict[str, Any]]] = [
        "one text",
        ("short", {"dimensions": 8}),
        ("raw", {"normalize": False}),
        ("asked", {"input_type": "query"}),
        ("asked", {"prompt_name": "query", "input_type": "document"}),
        "word " * 400,
    ]
    beside = client.submit(["beside them"], lane=Lane.BULK)
    task_id = submit_rows(client, storage, texts)
    roles.worker()
    assert client.ended(task_id).state is State.COMPLETED
    rows = outcomes(client, storage, task_id)
    expected = [
        inline(client, ["one text"]),
        inline(client, ["short"], Options(dimensions=8)),
        inline(client, ["raw"], Options(normalize=False)),
        inline(client, ["asked"], Options(prompt_name="query")),
        inline(client, ["asked"], Options(prompt_name="query")),
        inline(client, ["word " * 400]),
    ]
    assert sorted(rows) == list(range(len(texts)))
    for number, vectors in enumerate(expected):
        assert np.array_equal(vector_of(rows[number]), vectors[0])
    assert [number for number, row in rows.items() if row.truncated] == [5]
    assert client.task(task_id).prompt_tokens == sum(row.tokens for row in rows.values())
    client.completed(beside)


def test_a_claim_of_many_megabytes_is_done_in_portions(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    texts = [f"number {n} " + "word " * 450_000 for n in range(12)]
    task_id = submit_rows(client, storage, texts)
    roles.worker(streams=1)  # several take a share each
    assert client.ended(task_id).state is State.COMPLETED
    assert client.told("claims") == 1
    committed = client.ledger.run(read_result(task_id))
    assert committed is not None
    assert len({VectorsReference.from_json(piece.data).vectors for piece in committed.pieces}) == 3
    rows = outcomes(client, storage, task_id)
    for number, vectors in enumerate(inline(client, [text[:5_000] for text in texts])):
        assert np.array_equal(vector_of(rows[number]), vectors)


def test_a_row_fails_alone(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    texts: list[str | tuple[str, dict[str, Any]]] = [
        "good",
        ("word " * 400, {"truncate": False}),
        "!!fail!!",
        ("good", {"dimensions": 5000}),
        ("good", {"no such option": 1}),
        "good",
    ]
    task_id = submit_rows(client, storage, texts)
    roles.worker()
    task = client.ended(task_id)
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 2, 4)
    seen = {n: row.error.code for n, row in outcomes(client, storage, task_id).items() if row.error}
    assert seen == {1: "input_too_long", 2: "encoding_failed", 3: "invalid_dimensions", 4: "invalid_request"}


def test_a_row_that_kills_its_worker_fails_alone(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    texts = [f"text {n}" for n in range(6)]
    texts[2] = "!!kill!!"
    task_id = submit_rows(client, storage, texts, unit_rows=6)
    roles.worker(start=False, lease_s=2).launch()
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
    roles.worker()
    wait_until(lambda: client.overview().storage_outage, message="a worker says that it is away")
    client.completed(client.submit(["online"]))
    client.completed(client.submit(["bulk"], lane=Lane.BULK))
    assert client.task(task_id).completed == 0
    folder.unlink()
    elsewhere.rename(folder)
    task = client.ended(task_id)
    assert (task.state, task.completed, task.failed) == (State.COMPLETED, 8, 0)
    assert client.counter("lost_leases") == 0


@pytest.mark.thorough
def test_a_part_that_cannot_be_written_waits(
    roles: Roles, client: LedgerClient, storage: Storage, tmp_path: Path
) -> None:
    worker = roles.worker()
    client.ended(submit_rows(client, storage, ["the storage is open"]))
    folder = tmp_path / ".embedq" / "storage" / ".incoming"
    in_the_way = folder.with_name("elsewhere")  # rows can be read, and nothing can be written
    task_id = submit_rows(client, storage, [f"text {n}" for n in range(8)], written=lambda: folder.rename(in_the_way))
    wait_until(lambda: client.overview().storage_outage, message="a worker says that it is away")
    for n in range(3):  # rows are tried again meanwhile
        client.completed(client.submit([f"bulk {n}"], lane=Lane.BULK))
    assert client.task(task_id).completed == 0
    in_the_way.rename(folder)
    assert client.ended(task_id).completed == 8
    wait_until(lambda: client.overview().storage_outage is None, message="that they go on")
    assert "batches wait: " in worker.log()
    assert client.counter("lost_leases") == 0


def test_rows_that_were_deleted_fail(roles: Roles, client: LedgerClient, storage: Storage) -> None:
    task_id = submit_rows(client, storage, ["a text"])
    storage.delete(f"{BATCH}/1.rows.0")
    roles.worker()
    assert client.ended(task_id).failed == 1
    row = outcomes(client, storage, task_id)[0]
    assert row.error is not None
    assert row.error.code == "not_stored"
    assert "no longer in the storage" in row.error.message
