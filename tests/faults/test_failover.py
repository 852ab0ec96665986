"""A failover behind an address that stays: what was connected to the former master finds the new one by itself."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
import redis

from tasks.ledger.client import Ledger
from tests.bulk import Bulk, line
from tests.faults.checks import assert_nothing_lost
from tests.faults.conftest import QUICK
from tests.faults.load import Load
from tests.ledger_client import LedgerClient
from tests.link import Link
from tests.processes import RedisGroup, RedisServer, Roles, wait_until
from tests.swept import swept

pytestmark = pytest.mark.faults

NUMBER = 1_200
"""Of documents, and of lines."""
LAG = 200
"""What the replica does not know of: so many vectors of each job, and the moves of documents workers beside them."""
SETTINGS: dict[str, Any] = QUICK | {"fake_tokens_per_s": 4_000, "streams": 1}

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
            for first in (True, False):
                if not first:
                    group.rejoin()
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


@pytest.mark.thorough
def test_jobs_go_on_from_what_a_replica_knows_that_lags(private_redis: RedisServer, tmp_path: Path) -> None:
    documents = [{"id": f"d{n}", "text": f"text {n}"} for n in range(NUMBER)]
    lines = [line(f"{n}", f"line {n}") for n in range(NUMBER)]
    other = RedisServer(tmp_path / "other").start()
    try:
        with (
            Link(private_redis.endpoint.port) as link,
            Roles(tmp_path, link.url) as roles,
            Bulk(roles, **SETTINGS) as bulk,
            bulk.api.client() as http,
        ):
            _replicate(private_redis, other)
            asked = {"source": {"documents": documents}, "sink": {"type": "dataset", "dataset": "d"}}
            ingestion = f"/v1/ingestions/{http.post('/v1/ingestions', json=asked).raise_for_status().json()['id']}"
            batch_id = bulk.create(lines)

            def embedded() -> int:
                job = http.get(ingestion).raise_for_status().json()
                assert not job["finished_at"], "the work ended before the replica took over"
                counts = bulk.client.batches.retrieve(batch_id).request_counts
                return min(int(job["chunks"]["embedded"]), counts.completed if counts else 0)

            known = wait_until(lambda: (n := embedded()) > LAG and n, message="vectors of both jobs")
            with other.client() as replica:
                replica.replicaof("NO", "ONE")  # from here on it knows of nothing
            wait_until(lambda: embedded() >= known + LAG, message="vectors that the replica does not know of")
            private_redis.kill()
            link.target = other.endpoint.port

            def ended() -> dict[str, Any] | None:
                answer = http.get(ingestion)
                return answer.json() if answer.is_success and answer.json()["finished_at"] else None

            job, batch = wait_until(ended, message="the end of the ingestion"), bulk.ended(batch_id)
            assert (job["status"], job["file_counts"]["completed"]) == ("completed", NUMBER)
            assert (batch.status, batch.error_file_id) == ("completed", None)
            assert [each["custom_id"] for each in bulk.lines(batch.output_file_id)] == [f"{n}" for n in range(NUMBER)]
            rows = [row for path in _parts(http, ingestion) for row in path]
            assert sorted(row["doc_id"] for row in rows) == sorted(each["id"] for each in documents)
            with other.client() as client:
                swept(client, roles.folder / "storage", "anonymous", "rows|parsed|vectors|listed[^.]")
    finally:
        other.stop()
        private_redis.start()


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


def _parts(http: Any, ingestion: str) -> Iterator[list[dict[str, Any]]]:
    """Rows of the parts of its output."""
    for file in http.get(f"{ingestion}/output").raise_for_status().json()["data"]:
        yield pq.read_table(io.BytesIO(http.get(file["url"]).raise_for_status().content)).to_pylist()
