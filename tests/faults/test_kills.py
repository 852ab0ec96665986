"""`kill -9` of every kind of process, a Redis that loads or stands still, restarts and a failover, under load."""

import signal
import threading
import uuid
from pathlib import Path
from typing import Self

import httpx
import numpy as np
import pytest

from tasks.encoder.encode import encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Text
from tasks.ledger.client import Ledger
from tasks.ledger.task import State
from tests.faults.conftest import QUICK, ring
from tests.ledger_client import LedgerClient
from tests.processes import ApiProcess, RedisGroup, RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

BETWEEN = 60
"""Texts accepted between two kills: the fault falls into running work, however fast the machine is."""
SLOW = QUICK | {"fake_tokens_per_s": 300}
"""Texts are encoded slower than they come in, also on a slow machine: the worker is at work when it is killed."""
ELSEWHERE = "redis://nobody/0"
"""Sentinels say where the master is."""


class Load:
    """Submits texts until it is told to stop; afterwards `accepted` maps task ids to texts. A context manager.

    Every submission carries an Idempotency-Key and is repeated with it until the answer is 202, so that a lost answer
    cannot double it.
    """

    def __init__(self, api: ApiProcess, *, name: str) -> None:
        self._api = api
        self._name = name
        self._wanted = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.accepted: dict[str, str] = {}
        self.retries = 0

    def more(self, texts: int) -> None:
        """Returns when so many more are accepted."""
        goal = self._wanted = len(self.accepted) + texts
        wait_until(lambda: len(self.accepted) >= goal, message=f"{goal} accepted texts")

    def refused(self) -> None:
        """Returns when one submission more has got no 202: whoever died is missed."""
        before = self.retries
        wait_until(lambda: self.retries > before, message="a submission that is not accepted")

    def _run(self) -> None:
        with self._api.client() as http:
            # While nothing waits for texts, what is being started again has the processor to itself.
            while not self._stopping.wait(0.004 if len(self.accepted) < self._wanted else 0.05):
                text = f"{self._name} text number {len(self.accepted)} of the load"
                headers = {"Idempotency-Key": uuid.uuid4().hex}
                while not self._submit(http, text, headers):  # also after the end: an answer may be lost
                    self.retries += 1
                    self._stopping.wait(0.05)

    def _submit(self, http: httpx.Client, text: str, headers: dict[str, str]) -> bool:
        try:
            answer = http.post("/v1/tasks", json={"input": text}, headers=headers)
        except httpx.TransportError:
            return False
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return False
        self.accepted[answer.raise_for_status().json()["id"]] = text
        return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def assert_nothing_lost(client: LedgerClient, load: Load) -> None:
    """Every accepted text has its own vector; as many items were committed as were accepted; no lease is left."""
    assert len(load.accepted) >= 100, "too little load to prove anything"
    expected, _ = encode(FakeEncoder(), [Text(text) for text in load.accepted.values()], max_padded_tokens=2048)
    for task_id, item in zip(load.accepted, expected, strict=True):
        assert client.ended(task_id).state is State.COMPLETED
        assert item.vector is not None
        np.testing.assert_array_equal(client.result(task_id).vectors[0], item.vector)
    assert client.counter("committed_items") == len(load.accepted)
    wait_until(lambda: client.overview().leases == 0, message="no lease left")


def _is_working(client: LedgerClient) -> None:
    wait_until(lambda: client.overview().leases > 0, message="a claim in flight")


def test_everything_is_killed_in_turn(private_redis: RedisServer, private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**SLOW) for _ in range(2)]
    with Load(api, name="all") as load:
        load.more(BETWEEN)
        _is_working(client)
        workers[0].kill()
        load.more(BETWEEN)
        _is_working(client)
        workers[1].kill_child()
        private_redis.kill()
        load.refused()
        private_redis.command += ["--key-load-delay", "2000"]  # microseconds: it answers LOADING for a while
        private_redis.start()
        workers[0].start()
        load.more(BETWEEN)
        private_redis.send(signal.SIGSTOP)
        try:
            load.refused()
        finally:
            private_redis.send(signal.SIGCONT)
        load.more(BETWEEN)
        api.kill()
        workers[1].kill()
        load.refused()
        api.start()
        workers[1].start()
        load.more(BETWEEN)
    assert_nothing_lost(client, load)
    assert client.counter("lost_leases") > 0, "no kill fell into work"
    ring(private_redis, client.model)
    assert "Traceback" not in "".join(worker.log() for worker in workers)


def test_a_rolling_restart_loses_and_convicts_nobody(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**QUICK) for _ in range(2)]
    with Load(api, name="rolling") as load:
        for worker in workers:
            load.more(BETWEEN)
            assert worker.stop() == 0
            worker.start()
    assert_nothing_lost(client, load)
    # Everything was given back in time, so no lease ran out and no item became a suspect.
    assert client.counter("lost_leases") == 0
    assert client.counter("failed_items") == 0


def test_sentinels_fail_over_under_load_and_nothing_accepted_is_lost(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    private_redis.stop()  # it says whether there is a Redis program at all
    with RedisGroup(tmp_path / "group") as group, Roles(tmp_path, ELSEWHERE, **group.settings) as roles:
        api, worker = roles.api(redis_ack="replica"), roles.worker(**QUICK)
        child, ledger = worker.child_pid, Ledger.connect(ELSEWHERE, sentinels=group.named)
        with Load(api, name="failover") as load:
            load.more(BETWEEN)
            group.fail_over()
            group.rejoin()
            load.more(BETWEEN)
        with group.master.client() as client:
            consumes = lambda: any(connection["cmd"] == "brpop" for connection in client.client_list())  # noqa: E731
            wait_until(consumes, message="the worker's parent at the new master")
        assert_nothing_lost(LedgerClient(ledger), load)
        assert (worker.running, worker.child_pid) == (True, child)
        assert "Traceback" not in worker.log() + api.log()
        ledger.close()
