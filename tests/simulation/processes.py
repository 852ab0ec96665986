"""Processes of workers and their streams, as far as they hear what is published."""

from typing import Any

from tests.simulation.thin_client import ROOT, Claim

_WAKE = f"{ROOT}:q:m:wake:"


class Process:
    """Two streams that share a fate, and a subscription to what wakes them."""

    def __init__(self, client: Any, name: str) -> None:
        self.name, self.alive, self.woken, self._client = name, True, 0, client
        self.streams = [Stream(self, f"{name}/{n}") for n in range(2)]
        self._channels = [_WAKE + stream.name for stream in self.streams]
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(*self._channels)
        for _ in self.streams:
            assert self._pubsub.get_message(timeout=2)["type"] == "subscribe"

    def hear(self) -> None:
        """Takes note of what was published."""
        if not self.alive:
            return
        self._pubsub.ping()
        while (message := self._pubsub.get_message(timeout=2)) and message["type"] != "pong":
            if message["type"] == "message":
                self.woken += 1
                for stream in self.streams:
                    if message["channel"].decode().endswith(stream.name):
                        stream.notified = True

    def close(self) -> None:
        """Ends its subscription; returns when Redis has noticed."""
        if not self.alive:
            return
        self._pubsub.close()
        self.alive = False
        while any(number for _, number in self._client.pubsub_numsub(*self._channels)):
            pass


class Stream:
    """idle -> started -> busy | lingering | paused | again -> ... -> idle; hung is busy without a sign."""

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name
        self.state, self.notified, self.until, self.rang = "idle", False, 0, False
        self.claim: Claim | None = None

    @property
    def claimed(self) -> Claim:
        """Of a stream that is busy."""
        assert self.claim is not None
        return self.claim
