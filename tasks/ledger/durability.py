"""What a Redis must be so that accepted work is safe in it. The one place that judges its settings.

INFO tells all but `appendfsync`, and every role may call it; CONFIG also tells passwords, so roles may not.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from worker_config.redis_url import OLDEST_VERSION, RedisAck

_CLOCK_S = 1.0
_VERSION = re.compile(r"(\d+)\.(\d+)")
_SET = "in the file with Redis's settings, and at once with `redis-cli CONFIG SET"


@dataclass(frozen=True, slots=True)
class Check:
    """One fact of a Redis, judged.

    Attributes:
        value: as Redis has it; None: it does not tell.
        fine: False: accepted work may be lost, or Redis cannot serve.
        detail: what the value means.
        advice: what to do; "" when there is nothing to do.
    """

    name: str
    value: str | None
    fine: bool
    detail: str
    advice: str = ""


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

    def settings(self) -> Iterator[Check]:
        """Those with which Redis keeps what it has confirmed."""
        yield self._setting(
            "appendonly",
            {0: "no", 1: "yes"}.get(self.info.get("aof_enabled", -1)),
            "yes",
            "accepted tasks are lost when Redis dies",
        )
        yield self._setting(
            "maxmemory-policy",
            self.info.get("maxmemory_policy"),
            "noeviction",
            "a full Redis throws accepted tasks away",
        )

    def checks(self, ack: RedisAck) -> Iterator[Check]:
        """All of them. `ack`: whose confirmation an answer waits for."""
        yield self._version()
        yield from self.settings()
        yield self._appendfsync()
        yield self._replicas(ack)
        yield self._clock()

    def _version(self) -> Check:
        name = "valkey" if "valkey_version" in self.info else "redis"
        version = self.info.get(f"{name}_version")
        found = _VERSION.match(str(version))
        if found is None:
            return _untold("version", "6.2 or newer")
        if (int(found[1]), int(found[2])) >= OLDEST_VERSION:
            return Check("version", f"{name} {version}", True, f"{name} {version}")
        return Check("version", f"{name} {version}", False, f"{name} {version} lacks commands", "use 6.2 or newer")

    @staticmethod
    def _setting(name: str, value: str | None, wanted: str, otherwise: str) -> Check:
        if value is None:
            return _untold(name, wanted)
        if value == wanted:
            return Check(name, value, True, value)
        return Check(name, value, False, f"{value}: {otherwise}", f"set it to {wanted} {_SET} {name} {wanted}`")

    def _appendfsync(self) -> Check:
        if self.appendfsync != "everysec":
            return self._setting(
                "appendfsync", self.appendfsync, "always", "accepted tasks are lost when the machine of Redis dies"
            )
        detail = "everysec: the last second is lost when the machine of Redis dies"
        return Check(
            "appendfsync", "everysec", True, detail, f"to lose nothing, set it to always {_SET} appendfsync always`"
        )

    def _replicas(self, ack: RedisAck) -> Check:
        if "connected_slaves" not in self.info:
            return _untold("replicas", "1 or more" if ack == "replica" else "any number")
        # One that is still copying is connected too, and confirms nothing.
        states = (self.info.get(f"slave{n}", {}) for n in range(self.info["connected_slaves"]))
        count = sum(state.get("state") == "online" for state in states)
        detail = f"{count} follow{'s' if count == 1 else ''}"
        if ack == "local":
            return Check("replicas", str(count), True, f"{detail}, no answer waits for one (EMBEDQ_REDIS_ACK=local)")
        if count == 0:
            advice = "start a replica, or set EMBEDQ_REDIS_ACK=local for all roles"
            return Check(
                "replicas", "0", False, f"{detail}: all that would be promised gets 503 not_replicated", advice
            )
        advice = "run two, so that one may be away" if count == 1 else ""
        return Check("replicas", str(count), True, f"{detail}, answers wait for one (EMBEDQ_REDIS_ACK=replica)", advice)

    def _clock(self) -> Check:
        side = "ahead of" if self.ahead_s > 0 else "behind"
        detail = f"{abs(self.ahead_s):.1f} s {side} the API's"
        fine = abs(self.ahead_s) < _CLOCK_S
        return Check(
            "clock", f"{self.ahead_s:.1f}", fine, detail, "" if fine else "synchronise both clocks (chrony, NTP)"
        )


def _untold(name: str, wanted: str) -> Check:
    return Check(name, None, True, "Redis does not tell it to this user", f"see for yourself that it is {wanted}")
