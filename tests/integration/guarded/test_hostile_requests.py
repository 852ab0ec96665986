"""Hundreds of hostile requests to a whole service: none is a defect, nothing of them is left. See `make hostile`."""

import asyncio

from bench.hostile.requests import Attacker
from bench.hostile.trial import Outcome, Traces, clean_up, send_all, wait_clean
from stack.testing import PATIENCE_S
from tests.integration.guarded.conftest import OTHER_KEY, Guarded

REQUESTS = 60


def test_hostile_requests_are_refused_and_leave_nothing(guarded: Guarded) -> None:
    outcome = Outcome()
    port = int(guarded.api.base_url.rpartition(":")[2])
    with guarded.server.client() as connection, guarded.api.client() as client:
        client.headers["authorization"] = f"Bearer {OTHER_KEY}"
        client.post("/v1/ingestions", json={"source": {"documents": [{"id": "1", "text": "a"}]}})
        client.post("/v1/embeddings", json={"input": "a first query"})
        clean_up(client)  # keys of bounded size stay for ever after the first ingestion and the first query
        before = Traces.of(connection, guarded.storage)

        asyncio.run(send_all(port, Attacker(15, OTHER_KEY).requests(REQUESTS), outcome))

        # A busy machine may say so: that is an answer.
        assert [defect for defect in outcome.defects if b":overloaded" not in defect[1]] == []
        assert sum(row[1] for row in outcome.rows()) == REQUESTS
        assert outcome.unanswered == {}
        assert client.post("/v1/embeddings", json={"input": "a good query"}).status_code == 200
        clean_up(client)
        assert wait_clean(connection, guarded.storage, before, timeout_s=PATIENCE_S) == []


def test_a_seed_makes_the_same_requests() -> None:
    assert list(Attacker(1, OTHER_KEY).requests(50)) == list(Attacker(1, OTHER_KEY).requests(50))
