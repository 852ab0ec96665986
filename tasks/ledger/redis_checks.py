"""What a Redis can and keeps: its settings, its mode and the rights of its user. The one place that judges them.

Each role asks at its start, and the web tier when a person asks. INFO tells all settings but `appendfsync`, and every
role may call it; CONFIG also tells passwords, so roles may not. Rights are tried: nobody may ask what it may do.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.exceptions import RedisError, ResponseError

from tasks.errors import WrongRedis
from tasks.ledger.redis_keys import ENDED_CHANNEL
from tasks.ledger.scripts import Command
from worker_config.redis_connection import OLDEST_VERSION, RedisAck

_CLOCK_S = 1.0
_VERSION = re.compile(r"(\d+)\.(\d+)")
_SET = "in the file with Redis's settings, and at once with `redis-cli CONFIG SET"
LOST = (
    "Redis has lost its data: somebody emptied it, or it started without its file. What was accepted before is gone. "
    "The empty Redis belongs to this version now, and work goes on"
)
"""For the log of whoever sees first that a Redis in use is empty."""


def questions(bells: str = "") -> list[Command]:
    """What tells all of these facts, in one round trip, and does no harm; `bells`: for who hears those of this queue.

    A bell is popped from several lists at once, as kombu does it, which no server in cluster mode takes.
    """
    popped = ("BRPOP", f"{bells}.none", f"{bells}.nothing", 0.01)
    tried: list[Command] = [("EVAL", "return 1", 0), ("PUBLISH", ENDED_CHANNEL, ""), *([popped] if bells else [])]
    return [("TIME",), ("INFO",), ("CONFIG GET", "appendfsync"), *tried]


def facts_from(replies: Sequence[Any]) -> "RedisFacts":
    """The facts that the replies to `questions` tell, as soon as they have come.

    Raises:
        RedisError: something that every role needs is refused.
    """
    clock, info, config, *tried = replies
    # What this user may not ask, or a hosted service does not have, is left out.
    info, config = ({} if isinstance(reply, ResponseError) else reply for reply in (info, config))
    for reply in (clock, info, config, *tried):
        if isinstance(reply, RedisError):
            raise reply
    seconds, microseconds = clock
    return RedisFacts(info, config.get("appendfsync"), ahead_s=seconds + microseconds / 1e6 - time.time())


@dataclass(frozen=True, slots=True)
class Check:
    """One fact of a Redis, judged.

    Attributes:
        value: as Redis has it; None: it does not tell.
        fine: False: accepted work may be lost, or Redis cannot serve.
        detail: what the value means.
        advice: what to do; "" when there is nothing to do.
        serves: False: no role may start on it.
    """

    name: str
    value: str | None
    fine: bool
    detail: str
    advice: str = ""
    serves: bool = True


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """What a Redis says of itself.

    Attributes:
        info: its answer to INFO.
        appendfsync: None: it does not tell.
        ahead_s: by how much its clock is ahead of the one of this host.
    """

    info: Mapping[str, Any]
    appendfsync: str | None = None
    ahead_s: float = 0.0

    def require_usable(self) -> list[str]:
        """One warning for each setting with which accepted work can be lost.

        Hosted services refuse to tell their settings; there is no warning then.

        Raises:
            WrongRedis: it would lose accepted work by itself, or cannot serve, whatever its user may do.
        """
        bad = [check for check in (self._version(), self._mode(), *self._settings()) if not check.fine]
        said = [f"Redis has {check.name} {check.detail}; {check.advice} (docs/operations.md)." for check in bad]
        for check, sentence in zip(bad, said, strict=True):
            if not check.serves:
                raise WrongRedis(sentence)
        return said

    def checks(self, ack: RedisAck) -> Iterator[Check]:
        """All of them. `ack`: whose confirmation an answer waits for."""
        yield self._version()
        yield self._mode()
        yield from self._settings()
        yield self._appendfsync()
        yield self._replicas(ack)
        yield self._clock()

    def _version(self) -> Check:
        name = "valkey" if "valkey_version" in self.info else "redis"
        version = f"{name} {self.info.get(f'{name}_version')}"
        found = _VERSION.search(version)
        if found is None:
            return _untold("version", "6.2 or newer")
        if (int(found[1]), int(found[2])) >= OLDEST_VERSION:
            return Check("version", version, True, version)
        return Check("version", version, False, f"{version} lacks commands", "use 6.2 or newer", serves=False)

    def _mode(self) -> Check:
        mode = self.info.get("redis_mode", self.info.get("server_mode"))  # of Redis, of Valkey
        if mode == "cluster":
            advice = "use one without: cluster-enabled no"
            return Check("mode", mode, False, "cluster: no script may use all keys", advice, serves=False)
        return Check("mode", mode, True, mode) if mode else _untold("mode", "standalone")

    def _settings(self) -> Iterator[Check]:
        """Those with which Redis keeps what it has confirmed."""
        aof = {0: "no", 1: "yes"}.get(self.info.get("aof_enabled", -1))
        yield _setting("appendonly", aof, "yes", "accepted tasks are lost when Redis dies")
        policy, most = self.info.get("maxmemory_policy"), self.info.get("maxmemory")
        evicts = _setting("maxmemory-policy", policy, "noeviction", "a full Redis throws accepted tasks away")
        yield replace(evicts, serves=evicts.fine or not most)  # without a limit it is never full

    def _appendfsync(self) -> Check:
        lost = "is lost when the machine of Redis dies"
        check = _setting("appendfsync", self.appendfsync, "always", f"accepted work {lost}")
        if self.appendfsync != "everysec":
            return check
        return replace(
            check, fine=True, detail=f"everysec: the last second {lost}", advice=f"to lose nothing, {check.advice}"
        )

    def _replicas(self, ack: RedisAck) -> Check:
        if "connected_slaves" not in self.info:
            return _untold("replicas", "1 or more" if ack == "replica" else "any number")
        # One that is still copying is connected too, and confirms nothing.
        states = (self.info.get(f"slave{n}", {}) for n in range(self.info["connected_slaves"]))
        count = sum(state.get("state") == "online" for state in states)
        detail, advice = f"{count} follow{'s' if count == 1 else ''}", ""
        if ack == "local":
            detail += ", no answer waits for one (EMBEDQ_REDIS_ACK=local)"
        elif count == 0:
            detail += ": all that would be promised gets 503 not_replicated"
            advice = "start a replica, or set EMBEDQ_REDIS_ACK=local for all roles"
        else:
            detail += ", answers wait for one (EMBEDQ_REDIS_ACK=replica)"
            advice = "run two, so that one may be away" if count == 1 else ""
        return Check("replicas", str(count), count > 0 or ack == "local", detail, advice)

    def _clock(self) -> Check:
        side, fine = "ahead of" if self.ahead_s > 0 else "behind", abs(self.ahead_s) < _CLOCK_S
        advice = "" if fine else "synchronise both clocks (chrony, NTP)"
        return Check("clock", f"{self.ahead_s:.1f}", fine, f"{abs(self.ahead_s):.1f} s {side} the API's", advice)


def _setting(name: str, value: str | None, wanted: str, otherwise: str) -> Check:
    if value is None:
        return _untold(name, wanted)
    if value == wanted:
        return Check(name, value, True, value)
    return Check(name, value, False, f"{value}: {otherwise}", f"set it to {wanted} {_SET} {name} {wanted}`")


def _untold(name: str, wanted: str) -> Check:
    return Check(name, None, True, "Redis does not tell it to this user", f"see for yourself that it is {wanted}")
