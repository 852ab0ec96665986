"""Bells that get lost or come twice."""

import pytest

from stack.testing import Roles, wait_until
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from worker_config.celery_app import bell_queue

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


def test_a_lost_bell_is_noticed(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    queue = bell_queue(client.model)
    with api.client() as http:
        task = http.post("/v1/tasks", json={"input": "who hears this"}).raise_for_status().json()["id"]
    redis = client.ledger.client
    wait_until(lambda: redis.llen(queue), message="the bell")
    redis.delete(queue)
    private_roles.worker(**(QUICK | {"heartbeat_s": 1}))
    client.completed(task)


def test_a_doubled_bell_is_harmless(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    queue = bell_queue(client.model)
    with api.client() as http:
        tasks = [http.post("/v1/tasks", json={"input": f"text {n}"}).raise_for_status().json()["id"] for n in range(20)]
    redis = client.ledger.client
    wait_until(lambda: redis.llen(queue), message="the bell")
    bell = redis.lindex(queue, 0)
    assert isinstance(bell, bytes)
    redis.lpush(queue, *[bell] * 10)
    private_roles.worker(**QUICK)
    for task in tasks:
        client.completed(task)
    wait_until(lambda: not redis.llen(queue), message="all bells heard")
    assert client.counter("committed_items") == len(tasks)
