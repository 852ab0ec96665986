"""Start, stop, and the files that probes read."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tasks import probe
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.task import Lane, State
from tests.ledger_client import LedgerClient
from tests.processes import PATIENCE_S, RedisServer, Roles, WorkerProcess, free_port, wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.process_exit_codes import CONFIGURATION_EXIT_CODE
from worker_config.settings import load_settings
from worker_config.wake_up import send_bell


def long_task(client: LedgerClient) -> str:
    """One piece of many passes, which is at work."""
    task = client.submit([f"{n} " + "word " * 50 for n in range(500)], piece_items=500, piece_cost=10**9)
    wait_until(lambda: client.task(task).state is State.IN_PROGRESS, message="the claim")
    return task


def is_pending(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_a_warm_stop_gives_back_what_is_claimed(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker(fake_tokens_per_s=2000)
    task = long_task(client)
    assert worker.stop() == 0
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

    worker = roles.worker(start=False, fake_load_s=2)
    monkeypatch.setenv("EMBEDQ_RUN_DIR", str(worker.run_dir))
    assert probed("ready", "live", "nonsense") == [1, 1, 2]
    worker.start()
    assert probed("ready", "live") == [0, 0]
    worker.kill_child()
    wait_until(lambda: probed("ready") == [1], message="a killed child is not ready")
    worker.stop()
    assert probed("ready") == [1]


def test_the_parent_touches_its_file_during_a_long_slice(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker(fake_tokens_per_s=2000)
    task = client.submit([f"{n} " + "word " * 250 for n in range(40)], lane=Lane.BULK, piece_items=40, piece_cost=10**9)
    wait_until(lambda: client.task(task).state is State.IN_PROGRESS, message="the claim")
    (worker.run_dir / "alive").unlink()
    wait_until((worker.run_dir / "alive").exists, message="a touched file while the child is busy")
    assert not client.task(task).state.terminal


@pytest.mark.model
def test_a_model_that_cannot_load_stops_the_worker_for_good(roles: Roles) -> None:
    worker = roles.worker(start=False, compute="torch", model="/nonexistent/model")
    worker.launch()
    assert worker.wait(PATIENCE_S) == CONFIGURATION_EXIT_CODE
    assert "EMBEDQ_MODEL=/nonexistent/model" in worker.log()
    assert "Traceback" not in worker.log()


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"max_inputs": "many"}, "EMBEDQ_MAX_INPUTS=many"), ({"run_dir": "/proc/nowhere/run"}, "EMBEDQ_RUN_DIR=/proc/no")],
)
def test_a_bad_setting_stops_the_worker_at_once(roles: Roles, settings: dict[str, Any], said: str) -> None:
    worker = roles.worker(start=False, **settings)
    worker.launch()
    assert worker.wait() == CONFIGURATION_EXIT_CODE
    assert said in worker.log()
    assert "Traceback" not in worker.log()


def test_data_of_another_version_stops_the_worker(roles: Roles, client: LedgerClient) -> None:
    client.ledger.client.set("eq:schema", 999)
    worker = roles.worker(start=False, fake_load_s=600)  # it does not load its model before
    worker.launch()
    assert worker.wait() == CONFIGURATION_EXIT_CODE
    assert "schema 999" in worker.log()


def test_two_interrupts_in_a_row_still_stop_in_order(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker(fake_tokens_per_s=2000)
    long_task(client)
    worker.send(signal.SIGINT)
    wait_until(lambda: not is_pending(worker.pid, signal.SIGINT), message="the delivery of the first")
    assert worker.running
    worker.send(signal.SIGINT)
    assert worker.wait() == 0
    assert (client.overview().leases, client.overview().workers) == (0, ())


def test_signals_on_top_of_one_another_still_stop_in_order(roles: Roles) -> None:
    """The second arrives while the handler of the first holds a lock of Celery's."""
    worker = roles.worker()
    while worker.running:
        for number in (signal.SIGTERM, signal.SIGINT):
            worker.send(number)
    assert worker.wait() == 0


@pytest.mark.thorough  # a stream has to give up to linger
def test_a_stop_leaves_the_result_of_a_bell_unread(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker()
    child, bells = worker.child_pid, bell_queue(client.model)
    os.kill(child, signal.SIGSTOP)
    task = client.submit(["text"])
    celery = make_celery(load_settings(redis_url=roles.redis_url))
    send_bell(celery, client.model)
    celery.close()
    wait_until(lambda: client.ledger.client.llen(bells) == 0, message="a bell that is heard")
    for _ in range(2):  # turns of the loop: the child's pipe has it now
        (worker.run_dir / "alive").unlink()
        wait_until((worker.run_dir / "alive").exists, message="a turn of the parent's loop")
    worker.send(signal.SIGSTOP)
    worker.send(signal.SIGTERM)
    os.kill(child, signal.SIGCONT)
    client.completed(task)
    wait_until(
        lambda: not client.ledger.client.exists(f"eq:q:{client.model}:lingering"), message="the end of the slice"
    )
    worker.send(signal.SIGCONT)
    assert worker.wait() == 0


def test_a_stop_during_the_load_does_not_wait_for_it(roles: Roles, client: LedgerClient) -> None:
    worker = roles.worker(start=False, fake_load_s=600)
    worker.launch()
    wait_until((worker.run_dir / "alive").exists, message="the parent's loop")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert client.overview().workers == ()


def test_waiting_for_redis_is_not_hanging(private_redis: RedisServer, private_roles: Roles) -> None:
    worker = private_roles.worker(lease_s=3)
    private_redis.kill()
    alive = worker.run_dir / "alive"
    wait_until(lambda: "Redis is unavailable" in worker.log(), message="the worker's notice of the outage")
    alive.unlink()
    wait_until(alive.exists, message="a touched file during the outage")
    private_redis.start()
    with private_redis.client() as connection:
        client = LedgerClient(Ledger(connection))
        client.completed(client.submit(["after the outage"]))
    wait_until(lambda: "Redis is back" in worker.log(), message="the worker's notice of the end")


def test_a_worker_that_starts_without_redis_names_the_address_once(tmp_path: Path) -> None:
    with Roles(tmp_path, f"redis://me:secret@127.0.0.1:{free_port()}/0") as roles:
        worker = roles.worker(start=False)
        worker.launch()
        alive = worker.run_dir / "alive"
        wait_until(lambda: "waiting for Redis" in worker.log(), message="what it waits for")
        wait_until(lambda: worker.log().count("Redis refuses connections") == 2, message="parent and child say why")
        wait_until(alive.exists, message="a touched file")
        assert worker.stop() == 0
    address = roles.redis_url.replace("me:secret@", "")
    assert worker.log().count(f"waiting for Redis at {address} (EMBEDQ_REDIS_URL)") == 1
    assert "secret" not in worker.log()


def refused_beside(first: WorkerProcess, roles: Roles, said: str, **settings: Any) -> None:
    """Another worker ends at once, and says why."""
    second = roles.worker(start=False, **settings)
    second.launch()
    assert second.wait() == CONFIGURATION_EXIT_CODE
    assert said in second.log()
    assert first.running


def test_another_model_under_a_served_name_that_is_in_use_is_refused(roles: Roles, client: LedgerClient) -> None:
    first = roles.worker(served_name="vectors", fake_dimension=384)
    refused_beside(first, roles, "EMBEDQ_SERVED_NAME", served_name="vectors", fake_dimension=256)
    assert len(LedgerClient(client.ledger, "vectors").overview().workers) == 1
    refused_beside(first, roles, f"EMBEDQ_RUN_DIR={first.run_dir}: another worker", run_dir=first.run_dir)


def test_a_worker_without_shared_memory_names_its_place(roles: Roles) -> None:
    mount = 'mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"'
    without = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*without, "true"], check=False).returncode:
        pytest.skip("namespaces cannot be made here")
    worker = roles.worker(start=False)
    worker.command = [*without, *worker.command]
    worker.launch()
    assert worker.wait() == CONFIGURATION_EXIT_CODE
    assert "shm cannot be used: Read-only file system" in worker.log()
