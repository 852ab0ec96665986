"""What a caller is promised is on a replica first, where `EMBEDQ_REDIS_ACK` says `replica`.

A failover loses what the new master had not received. WAIT, sent behind the calls of a round trip, returns when a
replica has all that was written before, so one confirmation serves every call that travels together.

WAIT looks at the last write of its own connection. A repeated request only finds what an earlier one stored on another
connection, and Valkey 8 would confirm that at once. So something is written in each round trip: a message to nobody,
which replicas receive and which a full Redis takes.

WAITAOF (Redis 7.2, Valkey 8) waits until the replica has written it to its disk. It is asked first, for a part of the
time. A server that does not know it, and a replica that has no append-only file or writes it each second, are asked
with WAIT alone for the next minutes.
"""

import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from tasks.errors import NotReplicated
from tasks.ledger.redis_keys import ROOT
from tasks.ledger.scripts import Command

ON_DISK_MS = 200
IN_MEMORY_MS = 300
FORGET_S = 300.0
"""After that a server is asked for its replica's disk again: another one may be the master, or the replica changed."""
_CHANNEL = f"{ROOT}:promise"


class Replicas:
    """Asks for confirmations over all connections of one process."""

    def __init__(self) -> None:
        self._in_memory_until = 0.0

    def question(self) -> list[Command]:
        """What is to be sent behind the calls, in the same round trip."""
        on_disk: list[Command] = [("WAITAOF", 0, 1, ON_DISK_MS)] if time.monotonic() >= self._in_memory_until else []
        return [("PUBLISH", _CHANNEL, ""), *on_disk, ("WAIT", 1, IN_MEMORY_MS)]

    def doubt(self, answers: Sequence[Any]) -> Exception | None:
        """Why what was written is not safe, by the answers to `question()`; None: a replica has it."""
        written, *on_disk, in_memory = answers
        for answer in (written, in_memory):
            if isinstance(answer, RedisError):
                return answer
        if int(in_memory) < 1:
            return NotReplicated(
                "No replica of the queue (Redis) confirmed this in time. It may have been done.",
                retry_after_s=2,
            )
        if on_disk and (isinstance(on_disk[0], ResponseError) or int(on_disk[0][1]) < 1):
            self._in_memory_until = time.monotonic() + FORGET_S
        return None
