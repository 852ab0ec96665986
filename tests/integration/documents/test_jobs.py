"""A real documents worker: what becomes of jobs, whatever dies."""

import os
import signal
from typing import Any

import pytest

from tasks.ledger.task import State
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import fence
from tests.integration.documents.conftest import TRIAL, DocumentsClient, runs
from tests.processes import Roles, wait_until

QUICK: dict[str, Any] = {"lease_s": 2}


def test_a_job_returns_its_answer(roles: Roles, documents: DocumentsClient) -> None:
    roles.documents(module=TRIAL)
    answers = [documents.answer(documents.submit_job("echo", f"job-{n}")) for n in range(3)]
    assert [answer["id"] for answer in answers] == ["job-0", "job-1", "job-2"]
    assert len({answer["fence"] for answer in answers}) == 3
    assert documents.overview().model is None


def test_a_job_that_has_ended_does_not_wait_for_the_next_one(
    roles: Roles, documents: DocumentsClient, storage: Storage
) -> None:
    first, second = (documents.submit_job("slow", name) for name in ("first", "second"))
    storage.write("go/first", b"1")
    roles.documents(module=TRIAL)
    wait_until(lambda: runs(storage, "second") == 1, message="the second one under way")
    assert documents.task(first).state is State.COMPLETED
    assert not documents.task(second).state.terminal
    storage.write("go/second", b"1")
    documents.answer(second)


def test_a_job_that_cannot_be_done_fails_with_its_code(roles: Roles, documents: DocumentsClient) -> None:
    roles.documents(module=TRIAL)
    codes = {"refused": "invalid_file_format"}
    for kind, code in codes.items():
        task = documents.ended(documents.submit_job(kind, kind))
        assert (task.state, task.failed) == (State.FAILED, 1)
        assert documents.committed(task.id).errors[0].code == code
        assert not documents.committed(task.id).pieces


def test_a_job_that_fails_unforeseen_is_given_up_after_three_more_tries(
    roles: Roles, documents: DocumentsClient, storage: Storage
) -> None:
    worker = roles.documents(module=TRIAL)
    bad = documents.submit_job("broken", "secret-text")
    good = documents.submit_job("echo", "good")
    assert documents.ended(bad).state is State.FAILED
    assert documents.committed(bad).errors[0].code == "worker_lost"
    assert runs(storage, "secret-text") == 4
    assert documents.ended(good).state is State.COMPLETED
    assert "ZeroDivisionError" in worker.log()
    assert "secret-text" not in worker.log()


def test_what_is_away_is_what_a_job_comes_to(roles: Roles, documents: DocumentsClient) -> None:
    worker = roles.documents(module=TRIAL, **QUICK)
    assert documents.answer(documents.submit_job("away", "job")) == {"away": "storage"}
    wait_until(lambda: documents.overview().storage_outage, message="the worker says so")
    documents.answer(documents.submit_job("echo", "job"))
    wait_until(lambda: documents.overview().storage_outage is None, message="that it goes on")
    assert "a job waits: The storage is away." in worker.log()


@pytest.mark.parametrize("whole", [False, True])
def test_a_job_survives_a_kill(roles: Roles, documents: DocumentsClient, storage: Storage, whole: bool) -> None:
    worker = roles.documents(module=TRIAL, **QUICK)
    task = documents.submit_job("slow", "job")
    wait_until(lambda: runs(storage, "job") == 1, message="the first run")
    if whole:
        child = worker.child_pid
        worker.kill()
        os.kill(child, signal.SIGKILL)
        worker.start()
    else:
        worker.kill_child()
    wait_until(lambda: runs(storage, "job") == 2, message="the second run")
    storage.write("go/job", b"1")
    assert documents.ended(task).state is State.COMPLETED
    assert documents.counter("committed_items") == 1


def test_a_stop_gives_the_job_back_and_does_not_wait_for_it(
    roles: Roles, documents: DocumentsClient, storage: Storage
) -> None:
    worker = roles.documents(module=TRIAL)
    task = documents.submit_job("slow", "job")
    wait_until(lambda: runs(storage, "job") == 1, message="the first run")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    overview = documents.overview()
    assert (overview.leases, overview.workers, overview.counters.get("lost_leases", 0)) == (0, (), 0)
    assert documents.task(task).state is State.IN_PROGRESS
    storage.write("go/job", b"1")
    worker.start()
    assert documents.ended(task).state is State.COMPLETED


def test_a_job_that_hangs_loses_its_process_and_is_run_again(
    roles: Roles, documents: DocumentsClient, storage: Storage
) -> None:
    worker = roles.worker(module=TRIAL, start=False, **QUICK)
    worker.command.append("1")
    child = worker.start().child_pid
    task = documents.submit_job("hang", "job")
    assert documents.ended(task).state is State.COMPLETED
    assert runs(storage, "job") == 2
    assert worker.child_pid != child
    assert "the work has stood still for too long" in worker.log()


def test_a_job_longer_than_its_lease_keeps_it(roles: Roles, documents: DocumentsClient, storage: Storage) -> None:
    roles.documents(module=TRIAL, lease_s=0.5)
    task = documents.submit_job("slow", "job")
    wait_until(lambda: runs(storage, "job") == 1, message="the first run")
    beats = documents.ledger.client.time
    started = beats()[0]
    wait_until(lambda: beats()[0] - started >= 2, message="four leases")
    storage.write("go/job", b"1")
    assert documents.ended(task).state is State.COMPLETED
    assert runs(storage, "job") == 1
    assert documents.counter("lost_leases") == 0


def test_the_fence_is_of_the_claim() -> None:
    assert fence("worker/0/1/2") != fence("worker/0/1/3")
    assert fence("worker/0/1/2") == fence("worker/0/1/2")
    assert len(fence("x")) == 16
