"""A failover behind an address that stays: what was connected to the former master finds the new one by itself."""

from pathlib import Path

import httpx
import pytest
import redis

from tasks.ledger.client import Ledger
from tests.faults.checks import assert_nothing_lost
from tests.faults.conftest import QUICK
from tests.faults.load import Load
from tests.ledger_client import LedgerClient
from tests.link import Link
from tests.processes import RedisGroup, RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

ELSEWHERE = "redis://nobody/0"
"""Sentinels say where the master is."""


def test_the_service_goes_on_with_the_new_master(private_redis: RedisServer, tmp_path: Path) -> None:
    other = RedisServer(tmp_path / "other").start()
    try:
        with Link(private_redis.endpoint.port) as link, Roles(tmp_path, link.url) as roles:
            _replicate(private_redis, other)
            api, worker = roles.api(), roles.worker(**QUICK)
            child = worker.child_pid
            with api.client() as http:
                assert _embed(http, "before") == httpx.codes.OK
                _fail_over(private_redis, other)
                link.target = other.endpoint.port
                wait_until(lambda: _embed(http, "after") == httpx.codes.OK, message="an answer of the new master")
            with other.client() as client:
                wait_until(lambda: _consumes(client), message="the worker's parent at the new master")
            assert (worker.running, worker.child_pid) == (True, child)
            assert "Traceback" not in worker.log() + api.log()
    finally:
        with private_redis.client() as client:
            client.replicaof("NO", "ONE")
        other.stop()


def test_sentinels_fail_over_under_load_and_nothing_accepted_is_lost(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    private_redis.stop()  # it says whether there is a Redis program at all
    with RedisGroup(tmp_path / "group") as group, Roles(tmp_path, ELSEWHERE, **group.settings) as roles:
        api, worker = roles.api(redis_ack="replica"), roles.worker(**QUICK)
        child, ledger = worker.child_pid, Ledger.connect(ELSEWHERE, sentinels=group.named)
        with Load(api, name="failover") as load:
            load.more(60)
            group.fail_over()
            group.rejoin()
            load.more(60)
        with group.master.client() as client:
            wait_until(lambda: _consumes(client), message="the worker's parent at the new master")
        assert_nothing_lost(LedgerClient(ledger), load)
        assert (worker.running, worker.child_pid) == (True, child)
        assert "Traceback" not in worker.log() + api.log()
        ledger.close()


def _replicate(master: RedisServer, replica: RedisServer) -> None:
    with replica.client() as client:
        client.replicaof("127.0.0.1", master.endpoint.port)
        wait_until(lambda: client.info("replication").get("master_link_status") == "up", message="a replica")


def _fail_over(former: RedisServer, to: RedisServer) -> None:
    with former.client() as one, to.client() as other:
        other.replicaof("NO", "ONE")
        one.replicaof("127.0.0.1", to.endpoint.port)


def _embed(http: httpx.Client, text: str) -> int:
    return http.post("/v1/embeddings", json={"input": text}).status_code


def _consumes(client: redis.Redis) -> bool:
    return any(connection["cmd"] == "brpop" for connection in client.client_list())
