"""What a stream tells the heartbeat thread: which claims it holds, and that it moves."""

import threading


class Progress:
    """Claims in hand and a counter of steps. Leases are renewed only while the counter moves.

    A hung kernel holds the stream's thread, the counter stands still, and its lease runs out; a long job does not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: set[str] = set()
        self._steps = 0
        self._renewed_at = -1

    def step(self) -> None:
        """The stream did something."""
        self._steps += 1

    def hold(self, token: str) -> None:
        """A claim has been taken."""
        with self._lock:
            self._tokens.add(token)
        self._steps += 1

    def drop(self, token: str) -> None:
        """A claim is done with: committed, released or lost."""
        with self._lock:
            self._tokens.discard(token)
        self._steps += 1

    def held(self) -> tuple[str, ...]:
        """The claims in hand."""
        with self._lock:
            return tuple(self._tokens)

    def to_renew(self) -> tuple[str, ...]:
        """The claims whose leases to renew now: none unless the stream moved since the last call."""
        steps = self._steps
        if steps == self._renewed_at:
            return ()
        self._renewed_at = steps
        return self.held()
