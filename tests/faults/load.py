"""Clients for fault tests, in threads: one submits texts, one looks at ingestions; both whoever answers."""

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from tests.processes import ApiProcess, wait_until

_QUICK_S = 0.004
_SLOW_S = 0.05
"""Between two texts while nothing waits for them: what is being started again has the processor to itself."""


class _Client:
    """Does `_run` in a thread until `_stopping` is set. A context manager."""

    def __init__(self, api: ApiProcess) -> None:
        self._api = api
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()


class Load(_Client):
    """Submits texts until it is told to stop; afterwards `accepted` maps task ids to texts.

    Every submission carries an Idempotency-Key and is repeated with it until the answer is 202, so that a lost answer
    cannot double it. Use as a context manager.
    """

    def __init__(self, api: ApiProcess, *, name: str) -> None:
        super().__init__(api)
        self._name = name
        self._wanted = 0
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


class Watch(_Client):
    """Looks at ingestions over HTTP all the time, from a thread, whoever answers. A context manager.

    Attributes:
        answers: looks that got one.
    """

    def __init__(self, api: ApiProcess, ids: Sequence[str], *, pause_s: float = 0.2) -> None:
        super().__init__(api)
        self._seen: dict[str, Mapping[str, Any]] = {each: {} for each in ids}
        self._backwards: list[str] = []
        self._pause_s = pause_s
        self.answers = 0

    def ended(self) -> list[Mapping[str, Any]]:
        """The ingestions, once each of them has ended. Fails when one of them ever seemed to go back."""
        wait_until(
            lambda: all(seen.get("finished_at") for seen in self._seen.values()),
            message="the end of the ingestions",
        )
        assert not self._backwards
        return list(self._seen.values())

    def _run(self) -> None:
        with self._api.client() as http:
            while not self._stopping.wait(self._pause_s):
                for ingestion_id in self._seen:
                    self._look(http, ingestion_id)

    def _look(self, http: httpx.Client, ingestion_id: str) -> None:
        try:
            found = http.get(f"/v1/ingestions/{ingestion_id}").raise_for_status().json()
        except httpx.HTTPError:
            return
        self.answers += 1
        before, self._seen[ingestion_id] = self._seen[ingestion_id], found
        if before and (_done(found) < _done(before) or before["finished_at"]) and found != before:
            self._backwards.append(f"{before} became {found}")


def _done(ingestion: Mapping[str, Any]) -> tuple[int, int]:
    return ingestion["file_counts"]["completed"], ingestion["chunks"]["loaded"]
