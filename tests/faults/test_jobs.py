"""Batches and ingestions while all that works on them is killed: everything arrives, and once; odd lines of batches."""

import io
import os
import random
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from tasks.encoder.encode import encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Text
from tasks.item import Options
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.ingestions import Ingestion, IngestionRecord, read_ingestions
from tasks.records.jobs import list_jobs, read_tasks_of
from tasks.records.store import OPEN
from tests.bulk import Bulk, line
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.pg_server import PgServer
from tests.processes import RedisServer, Roles, WorkerProcess, wait_until
from tests.thorough import some

pytestmark = pytest.mark.faults

SEED = 303
"""Of the kills' order and moments."""
NUMBER = 1_000
DIMENSION = 8
SETTINGS: dict[str, Any] = QUICK | {
    "fake_dimension": DIMENSION,
    "fake_tokens_per_s": 1_800,
    "streams": 1,
}
CHUNKING = {"type": "static", "static": {"max_chunk_size_tokens": 16, "chunk_overlap_tokens": 0}}
SINKS = ({"type": "dataset", "dataset": "d"}, {"type": "postgresql", "name": "store", "table": "chunks"})
ROWS = "SELECT doc_id, chunk_id::text, chunk_index, text, embedding::real[] AS embedding FROM chunks"
DOCUMENT_TEXTS = {
    f"source/d{n}.txt": " ".join(f"w{n}-{at}" for at in range(40 if n % 50 == 0 else 3)) for n in range(NUMBER)
}
"""By id; every fiftieth has several chunks."""
LINES = {f"id-{n}": "word " * 300 if n % 250 == 150 else f"the text of line {n}" for n in range(NUMBER)}
"""Every 250th is longer than the fake encoder reads, and must not be cut."""


class WorkEnded(Exception):
    """The ingestions are done: what would be killed now is idle."""


class Victims:
    """The processes, each of which can be killed while the jobs are at work."""

    def __init__(self, bulk: Bulk, server: RedisServer, client: LedgerClient) -> None:
        self._bulk = bulk
        self._server = server
        self._ledger = client.ledger
        self._queues = {"model": client, "documents": LedgerClient(client.ledger, DOCUMENTS)}

    def embedded(self) -> int:
        """Chunks of the ingestion that is ahead which have a vector.

        Raises:
            WorkEnded: none is open.
        """
        ids = self._ledger.run(list_jobs(IngestionRecord, OPEN, limit=9))[0]
        if not ids:
            raise WorkEnded
        found: list[Ingestion] = self._ledger.run(read_ingestions(ids))
        return max(each.counts.chunks_embedded for each in self._ledger.run(read_tasks_of(found)))

    def kill(self, name: str, way: str, *, after: int) -> None:
        """Kills it in the middle of work, once the ingestion that is ahead is so far. It comes back when it can.

        `way`: the worker's parent, its child, or both. Raises `WorkEnded`, and then it is alive.
        """
        wait_until(lambda: self.embedded() >= after, message=f"{after} vectors")
        if name in self._queues:
            self._kill_worker(self._bulk.model if name == "model" else self._bulk.documents, name, way)
            return
        self._bulk.api.wait_ready()
        queues = self._queues.values()
        wait_until(lambda: self.embedded() and any(each.overview().leases for each in queues), message="work under way")
        if name == "api":
            self._bulk.api.kill()
            self._bulk.api.launch()
        else:
            self._server.kill()
            self._server.start()

    def _kill_worker(self, worker: WorkerProcess, queue: str, way: str) -> None:
        worker.wait_ready()  # so that no claim is left of the one before it
        while not self._stands_at_work(worker, queue):  # without a pause: a stage lasts some milliseconds
            self.embedded()
        child = worker.child_pid
        if way != "child":
            os.kill(worker.pid, signal.SIGKILL)
        if way != "parent":
            os.kill(child, signal.SIGKILL)
        os.killpg(worker.pid, signal.SIGCONT)
        if way == "child":  # or the next kill would find its ready file and its claims, and nobody behind them
            worker.await_end_of(child)
        else:
            worker.wait()
            worker.launch()

    def _stands_at_work(self, worker: WorkerProcess, queue: str) -> bool:
        """Whether it has a claim; if so all of it stands still, and cannot end the claim before the kill."""
        if not self._queues[queue].overview().leases:
            return False
        os.killpg(worker.pid, signal.SIGSTOP)
        if self._queues[queue].overview().leases:
            return True
        os.killpg(worker.pid, signal.SIGCONT)
        return False


@pytest.mark.parametrize("kills", some([1, 3], 1))
def test_a_batch_and_two_ingestions_survive_every_kill(
    private_redis: RedisServer,
    private_roles: Roles,
    client: LedgerClient,
    postgres: PgServer,
    database: str,
    *,
    kills: int,
) -> None:
    source = private_roles.folder / "source"
    source.mkdir()
    for name, text in DOCUMENT_TEXTS.items():
        (source.parent / name).write_text(text)
    places = {"ingest_roots": source, "sinks": f"store={postgres.url(database)}"}
    chance = random.Random(SEED)  # noqa: S311 - the same kills every time
    with Bulk(private_roles, **SETTINGS | places) as bulk:
        asked = {"source": {"urls": [f"file://{source}/*.txt"]}, "chunking": CHUNKING}
        with bulk.api.client() as http:
            made = [http.post("/v1/ingestions", json={**asked, "sink": sink}).json()["id"] for sink in SINKS]
        batch_id = bulk.create([line(each, text, truncate=False) for each, text in LINES.items()])
        # The API last: while it starts, the work goes on, and a fast machine ends it.
        names = [name for _ in range(kills) for name in (*chance.sample(["model", "documents", "redis"], 3), "api")]
        killed: list[tuple[str, int]] = []
        victims = Victims(bulk, private_redis, client)
        with suppress(WorkEnded):  # where a restart takes long, the work is done before the last kill
            for left, name in zip(range(len(names), 0, -1), names, strict=True):
                share = chance.uniform(0, 0.8) / left
                after = victims.embedded() + int(share * (NUMBER - victims.embedded()))
                victims.kill(name, chance.choice(["parent", "child", "both"]), after=after)
                killed.append((name, after))
        bulk.api.wait_ready()
        batch = bulk.ended(batch_id)
        done, failed = bulk.lines(batch.output_file_id), bulk.lines(batch.error_file_id)
        with bulk.api.client() as http:
            ended = [_ended(http, each) for each in made]
            files = http.get(f"/v1/ingestions/{made[0]}/output").json()["data"]
            tables = [pq.read_table(io.BytesIO(http.get(file["url"]).raise_for_status().content)) for file in files]
    parquet = [row for part in tables for row in part.to_pylist()]
    assert {name for name, _ in killed} == set(names), killed
    table: list[Mapping[str, Any]] = [dict(row) for row in postgres.execute(ROWS, database)]
    for rows, ingestion in ((parquet, ended[0]), (table, ended[1])):
        assert_whole(rows, DOCUMENT_TEXTS)
        counts = {name: number for name, number in ingestion["file_counts"].items() if number}
        assert (ingestion["status"], counts) == ("completed", {"total": NUMBER, "completed": NUMBER})
        assert {ingestion["chunks"][name] for name in ("total", "embedded", "loaded")} == {len(rows)}
    assert {row["chunk_id"] for row in parquet} == {row["chunk_id"] for row in table}

    too_long = [each for each in LINES if LINES[each].startswith("word")]
    assert batch.status == "completed", batch
    assert [each["custom_id"] for each in failed] == too_long
    assert {each["response"]["body"]["error"]["code"] for each in failed} == {"input_too_long"}
    assert [each["custom_id"] for each in done] == [each for each in LINES if each not in too_long], "once, in order"
    texts = [Text(LINES[each["custom_id"]]) for each in done]
    assert_vectors(texts, [each["response"]["body"]["data"][0]["embedding"] for each in done])
    assert client.counter("committed_items") == len(parquet) + len(table) + len(done), "something was encoded twice"


def _ended(http: httpx.Client, ingestion_id: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        found: dict[str, Any] = http.get(f"/v1/ingestions/{ingestion_id}").json()
        return found if found.get("finished_at") else None

    return wait_until(ended, message=f"the end of {ingestion_id}")


def assert_whole(rows: Sequence[Mapping[str, Any]], documents: Mapping[str, str]) -> None:
    """Every chunk of every document, once, with its own vector."""
    assert len({row["chunk_id"] for row in rows}) == len(rows)
    ordered = sorted(rows, key=lambda row: (row["doc_id"], row["chunk_index"]))
    found: dict[str, list[str]] = {}
    for row in ordered:
        assert row["chunk_index"] == len(found.setdefault(row["doc_id"], []))
        found[row["doc_id"]].append(row["text"])
    assert {name: " ".join(parts) for name, parts in found.items()} == documents
    texts = [Text(row["text"], Options(prompt_name="document")) for row in ordered]
    assert_vectors(texts, [row["embedding"] for row in ordered])


def assert_vectors(texts: Sequence[Text], vectors: Sequence[Sequence[float]]) -> None:
    expected, _ = encode(FakeEncoder(dimension=DIMENSION), texts, max_padded_tokens=2048)
    np.testing.assert_array_equal(np.array(vectors, np.float32), np.array([item.vector for item in expected]))


def test_a_huge_line_takes_as_long_as_it_takes_and_one_with_a_deadly_text_fails_alone(
    private_roles: Roles, client: LedgerClient
) -> None:
    # Five seconds of one stream: many leases, slices and longest claims of these settings.
    texts = [f"text {n} " + "word " * 46 for n in range(2_048)]
    quick: dict[str, Any] = {"lease_s": 1, "fake_tokens_per_s": 20_000}
    with Bulk(private_roles, **QUICK | quick) as bulk:
        child = bulk.model.child_pid
        batch_id = bulk.create([line("huge", texts, encoding_format="base64", dimensions=8)])
        wait_until(lambda: client.overview().leases > 0, message="its claim")
        for n in range(3):  # somebody asks meanwhile
            client.completed(client.submit([f"query {n}"]))
        batch = bulk.client.batches.retrieve(batch_id)
        assert batch.status == "in_progress", "the queries waited for the line"
        batch = bulk.ended(batch_id)
        assert (batch.status, batch.error_file_id) == ("completed", None), batch
        (done,) = bulk.lines(batch.output_file_id)
        assert len(done["response"]["body"]["data"]) == len(texts)
        assert bulk.model.child_pid == child, "its process was ended while it worked"
        assert client.counter("lost_leases") == 0

        deadly = [*texts[:70], "!!kill!!", *texts[71:100]]
        batch = bulk.ended(bulk.create([line("before", texts[:100]), line("deadly", deadly), line("after", "a text")]))
        assert [each["custom_id"] for each in bulk.lines(batch.output_file_id)] == ["before", "after"]
        (failed,) = bulk.lines(batch.error_file_id)
        error = failed["response"]["body"]["error"]
        assert (failed["custom_id"], failed["response"]["status_code"]) == ("deadly", 422)
        assert (error["code"], error["param"]) == ("worker_lost", "input[70]")
        assert client.counter("failed_items") == 1
