"""Batches that are hard on the worker: everything that works on a large one is killed, twice each; one line is huge."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from tests.bulk import Bulk, line
from tests.faults.conftest import QUICK
from tests.heavy import openai
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

LINES = 10_000
SETTINGS: dict[str, Any] = QUICK | {"fake_tokens_per_s": 4_500}


@pytest.mark.thorough
def test_a_large_batch_survives_every_kill(private_redis: RedisServer, private_roles: Roles) -> None:
    with Bulk(private_roles, **SETTINGS) as bulk:
        lines = [
            line(f"id-{n}", "word " * 300, truncate=False)  # longer than the fake encoder reads
            if n % 1000 == 500
            else line(f"id-{n}", f"the text of line {n}", encoding_format="base64", dimensions=8)
            for n in range(LINES)
        ]
        batch_id = bulk.create(lines)

        def look() -> openai.types.Batch | None:
            try:
                return bulk.client.batches.retrieve(batch_id)
            except openai.APIError:
                return None

        def reaches(status: str) -> None:
            wait_until(lambda: (batch := look()) and batch.status == status, message=status)

        def done() -> int:
            batch = wait_until(look, message="an answer")
            assert batch.status == "in_progress", f"{batch.status}: the rest of the kills would hit nothing"
            assert batch.request_counts is not None
            return batch.request_counts.completed + batch.request_counts.failed

        def moves() -> None:
            """Returns when 500 more rows are done: the next fault falls into running work."""
            start = done()
            wait_until(lambda: done() >= start + 500, message=f"500 more rows after {start}")

        bulk.documents.kill()  # while it reads the file, or is about to
        bulk.documents.start()
        reaches("in_progress")
        for again in (False, True):
            moves()
            bulk.model.kill() if again else bulk.model.kill_child()
            done()
            bulk.api.kill()
            bulk.api.start()
            if again:
                bulk.model.start()
            moves()
            private_redis.kill()
            private_redis.start()
        reaches("finalizing")
        bulk.documents.kill()  # while it writes the files
        bulk.documents.start()
        assert_complete(bulk, bulk.ended(batch_id), lines)


def assert_complete(bulk: Bulk, batch: openai.types.Batch, lines: list[dict[str, Any]]) -> None:
    should_fail = [each["custom_id"] for each in lines if each["body"].get("truncate") is False]
    assert batch.status == "completed", batch
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (LINES - len(should_fail), len(should_fail))
    done, failed = bulk.lines(batch.output_file_id), bulk.lines(batch.error_file_id)
    assert [each["custom_id"] for each in failed] == should_fail
    assert {each["response"]["body"]["error"]["code"] for each in failed} == {"input_too_long"}
    expected = [each["custom_id"] for each in lines if each["custom_id"] not in set(should_fail)]
    assert [each["custom_id"] for each in done] == expected, "each once, in order"
    for n in (0, 63, 64, 5_000, LINES - len(should_fail) - 1):
        (item,) = done[n]["response"]["body"]["data"]
        number = done[n]["custom_id"].removeprefix("id-")
        again: Any = bulk.client.embeddings.create(
            model=batch.model or "", input=f"the text of line {number}", dimensions=8, encoding_format="base64"
        )
        found = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
        np.testing.assert_array_equal(found, np.frombuffer(base64.b64decode(again.data[0].embedding), "<f4"))


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
