"""Everything a Redis holds, read in one step: what a test compares, and what the invariants are checked on."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import redis

_SCRIPT = """
local out = {}
local read = {string = {'GET'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'}, hash = {'HGETALL'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local how = read[kind]
  out[#out + 1] = {key, kind, redis.call('PTTL', key), redis.call(how[1], key, unpack(how, 2))}
end
return out
"""
_PAIRED = {"hash", "zset"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key: `value` is a dict for hashes and sorted sets, a set, a list or a string."""

    value: Any
    ttl_ms: int
    """-1: it lives for ever."""


class Snapshot:
    """All keys of one moment, by name."""

    def __init__(self, keys: dict[str, Key]) -> None:
        self.keys = keys

    @classmethod
    def take(cls, client: redis.Redis) -> Self:
        """A snapshot of the whole database."""
        return cls(
            {name.decode(): Key(_value(kind.decode(), raw), ttl) for name, kind, ttl, raw in client.eval(_SCRIPT, 0)}
        )

    @cached_property
    def values(self) -> dict[str, Any]:
        """Without the TTLs, which change while one looks."""
        return {name: key.value for name, key in self.keys.items()}

    def get(self, name: str) -> Any:
        """The value of a key; an empty dict when it does not exist."""
        key = self.keys.get(name)
        return {} if key is None else key.value

    def named(self, prefix: str) -> dict[str, Any]:
        """Values of the keys that start with `prefix`, by the rest of their names."""
        return {name.removeprefix(prefix): key.value for name, key in self.keys.items() if name.startswith(prefix)}


def _value(kind: str, raw: Any) -> Any:
    if kind in _PAIRED:
        parts = [_text(part) for part in raw]
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if kind == "set":
        return {_text(part) for part in raw}
    return [_text(part) for part in raw] if kind == "list" else _text(raw)


def _text(raw: bytes) -> str:
    # latin-1 keeps vectors comparable: any bytes have a text.
    return raw.decode("latin-1")
