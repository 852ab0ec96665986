"""Requests that are no HTTP, or hardly, to a whole service: none is a defect, nothing of them is left."""

import asyncio

from bench.hostile import Traces, clean_up, send_raw, warm_up
from tests.integration.guarded.conftest import OTHER_KEY, Guarded
from tests.processes import PATIENCE_S


def test_hostile_requests_are_refused_and_leave_nothing(guarded: Guarded) -> None:
    with guarded.server.client() as connection, guarded.api.client() as client:
        client.headers["authorization"] = f"Bearer {OTHER_KEY}"
        warm_up(client)  # keys of bounded size stay for ever after the first ingestion and the first query
        before = Traces.of(connection, guarded.storage)

        defects = asyncio.run(send_raw(guarded.api))

        # A busy machine may say so: that is an answer.
        assert [answer for answer in defects.values() if b":overloaded" not in answer] == []
        assert client.post("/v1/embeddings", json={"input": "a good query"}).status_code == 200
        clean_up(client)
        assert before.left(connection, guarded.storage, timeout_s=PATIENCE_S) == []
