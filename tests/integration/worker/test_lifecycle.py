"""Start, stop, and the files that probes read."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tasks import probe
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.task import State
from tests.ledger_client import LedgerClient
from tests.processes import Roles, WorkerProcess, free_port, wait_until
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE


def is_pending(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_a_warm_stop_gives_back_what_is_claimed(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker(fake_tokens_per_s=2000)
    task = client.submit([f"{n} " + "word " * 50 for n in range(500)], piece_items=500, piece_cost=10**9)
    wait_until(lambda: client.task(task).state is State.IN_PROGRESS, message="the claim")
    (worker.run_dir / "alive").unlink()
    wait_until((worker.run_dir / "alive").exists, message="a touched file while the child is busy")
    worker.send(signal.SIGINT)
    wait_until(lambda: not is_pending(worker.pid, signal.SIGINT), message="the delivery of the first")
    assert worker.running
    worker.send(signal.SIGINT)
    assert worker.wait() == 0
    assert (client.overview().leases, client.overview().workers, client.task(task).completed) == (0, (), 0)
    request = ClaimRequest("w", "w/1", 10**9, 10, 10_000, stamp=client.stamp)
    again = client.ledger.run(claim(client.model, request))
    # Nobody has died: the piece is whole.
    assert [(piece.items, piece.deaths) for piece in again.pieces] == [(500, 0)]


def test_what_a_killed_worker_held_is_taken_over_by_the_one_in_its_place(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker(lease_s=600, fake_tokens_per_s=2000)
    task = client.submit([f"{n} " + "word " * 50 for n in range(20)], piece_items=20, piece_cost=10**9)
    wait_until(lambda: client.overview().leases == 1, message="the claim")
    worker.kill()
    worker.start()
    client.completed(task)


def test_probes_follow_the_worker(roles: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
    def probed(*questions: str) -> list[int]:
        return [probe.main([question]) for question in questions]

    worker = roles.worker(start=False, fake_load_s=1)
    monkeypatch.setenv("EMBEDQ_RUN_DIR", str(worker.run_dir))
    assert probed("ready", "live", "nonsense") == [1, 1, 2]
    worker.start()
    assert probed("ready", "live") == [0, 0]
    worker.kill_child()
    wait_until(lambda: probed("ready") == [1], message="a killed child is not ready")
    worker.wait_ready()
    # The second signal arrives while the handler of the first holds a lock of Celery's.
    while worker.running:
        for number in (signal.SIGTERM, signal.SIGINT):
            worker.send(number)
    assert worker.wait() == 0
    assert probed("ready") == [1]


def ended_at_once(roles: Roles, said: str, **settings: Any) -> None:
    worker = roles.worker(start=False, **settings)
    worker.launch()
    assert worker.wait() == CONFIGURATION_EXIT_CODE
    assert said in worker.log()
    assert "Traceback" not in worker.log()


def test_a_bad_setting_stops_the_worker_at_once(roles: Roles) -> None:
    ended_at_once(roles, "EMBEDQ_MAX_INPUTS=many", max_inputs="many")
    ended_at_once(roles, "EMBEDQ_RUN_DIR=/proc/no", run_dir="/proc/nowhere/run")


def test_data_of_another_version_stops_the_worker(roles: Roles, client: LedgerClient) -> None:
    client.ledger.client.set("eq:schema", 999)
    ended_at_once(roles, "schema 999", fake_load_s=600)  # it does not load its model before


def test_another_model_under_a_served_name_that_is_in_use_is_refused(roles: Roles, client: LedgerClient) -> None:
    first = roles.worker(served_name="vectors", fake_dimension=384)
    ended_at_once(roles, "EMBEDQ_SERVED_NAME", served_name="vectors", fake_dimension=256)
    ended_at_once(roles, f"EMBEDQ_RUN_DIR={first.run_dir}: another worker", run_dir=first.run_dir)
    assert len(LedgerClient(client.ledger, "vectors").overview().workers) == 1
    assert first.running


def launched(roles: Roles, **settings: Any) -> WorkerProcess:
    """A worker whose parent's loop turns."""
    worker = roles.worker(start=False, **settings)
    worker.launch()
    wait_until((worker.run_dir / "alive").exists, message="the parent's loop")
    return worker


def test_a_stop_during_the_load_does_not_wait_for_it(roles: Roles, client: LedgerClient) -> None:
    worker = launched(roles, fake_load_s=600)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert client.overview().workers == ()


def test_a_worker_that_starts_without_redis_names_the_address_once(tmp_path: Path) -> None:
    with Roles(tmp_path, f"redis://me:secret@127.0.0.1:{free_port()}/0") as roles:
        worker = launched(roles)
        wait_until(lambda: worker.log().count("Redis refuses connections") == 2, message="parent and child say why")
        assert worker.stop() == 0
    address = roles.redis_url.replace("me:secret@", "")
    assert worker.log().count(f"waiting for Redis at {address} (EMBEDQ_REDIS_URL)") == 1
    assert "secret" not in worker.log()
