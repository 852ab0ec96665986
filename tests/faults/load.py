"""A client that submits texts from a thread, whoever answers, and what must hold after every fault."""

import threading
import uuid
from typing import Self

import httpx
import numpy as np

from tasks.encoder.encode import encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Text
from tasks.ledger.task import State
from tests.ledger_client import LedgerClient
from tests.processes import ApiProcess, wait_until


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
