"""What must hold after every fault: nothing accepted is lost, nothing is done twice, nothing stays leased."""

import numpy as np

from tasks.encoder.encode import encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Text
from tasks.ledger.task import State
from tests.faults.load import Load
from tests.ledger_client import LedgerClient
from tests.processes import wait_until


def assert_nothing_lost(client: LedgerClient, load: Load, *, others: int = 0, at_least: int = 100) -> None:
    """Every accepted text has its own vector; as many items were committed as were accepted; no lease is left.

    `others`: items that other calls of the test submitted and that completed.
    """
    assert len(load.accepted) >= at_least, "too little load to prove anything"
    for task_id in load.accepted:
        client.ended(task_id)
    states = [client.task(task_id).state for task_id in load.accepted]
    print(  # noqa: T201 - the counts are the point of these tests
        f"accepted {len(states)}, completed {states.count(State.COMPLETED)}, retries {load.retries}, "
        f"committed items {client.counter('committed_items')}, lost leases {client.counter('lost_leases')}, "
        f"stale units {client.counter('stale_units')}"
    )
    assert states.count(State.COMPLETED) == len(states)
    _assert_right_vectors(client, load)
    assert client.counter("committed_items") == len(states) + others
    wait_until(lambda: client.overview().leases == 0, message="no lease left")


def _assert_right_vectors(client: LedgerClient, load: Load) -> None:
    items = [Text(text) for text in load.accepted.values()]
    expected, _ = encode(FakeEncoder(), items, max_padded_tokens=2048)
    for task_id, item in zip(load.accepted, expected, strict=True):
        assert item.vector is not None
        np.testing.assert_array_equal(client.result(task_id).vectors[0], item.vector)
