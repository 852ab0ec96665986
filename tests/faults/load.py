"""Load for fault tests: single-text tasks over HTTP from a thread, each repeated until it is accepted."""

import threading
import time
import uuid
from types import TracebackType
from typing import Self

import httpx

from tests.harness import ApiProcess, wait_until

_QUICK_S = 0.004
_SLOW_S = 0.05
"""Between two texts while nothing waits for them: what is being started again has the processor to itself."""


class Load:
    """Submits texts until it is told to stop; afterwards `accepted` maps task ids to texts.

    Every submission carries an Idempotency-Key and is repeated with it until the answer is 202, so that a lost answer
    cannot double it. Use as a context manager.
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
        wait_until(lambda: len(self.accepted) >= goal, timeout_s=60, message=f"{goal} accepted texts")

    def _run(self) -> None:
        number = 0
        with self._api.client() as http:
            while not self._stopping.wait(_QUICK_S if len(self.accepted) < self._wanted else _SLOW_S):
                self._submit(http, f"{self._name} text number {number} of the load")
                number += 1

    def _submit(self, http: httpx.Client, text: str) -> None:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                answer = http.post("/v1/tasks", json={"input": text}, headers=headers)
                if answer.status_code == httpx.codes.ACCEPTED:
                    self.accepted[answer.json()["id"]] = text
                    return
                assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
            except httpx.TransportError:
                pass
            self.retries += 1
            self._stopping.wait(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
