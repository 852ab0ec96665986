"""Everything a Redis holds, read in one step: what a test compares, and what the invariants are checked on."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import orjson
import redis

# One JSON text, because parsing thousands of small replies would take most of a simulation's time. JSON holds no
# vectors; their digests compare as well.
_SCRIPT = r"""
local read = {string = {'GET'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'}, hash = {'HGETALL'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}}
local function text(value)
  return string.find(value, '[%z\1-\31\127-\255]') and redis.sha1hex(value) or value
end
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local how = read[kind]
  local value = redis.call(how[1], key, unpack(how, 2))
  if type(value) == 'string' then value = {value} end
  for i = 1, #value do value[i] = text(value[i]) end
  out[#out + 1] = {key, kind, redis.call('PTTL', key), value}
end
return cjson.encode(out)
"""


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
            {name: Key(_value(kind, raw), ttl) for name, kind, ttl, raw in orjson.loads(client.eval(_SCRIPT, 0))}
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


def _value(kind: str, parts: list[str]) -> Any:
    if kind in {"hash", "zset"}:
        return dict(zip(parts[::2], parts[1::2], strict=True))
    if kind == "set":
        return set(parts)
    return parts if kind == "list" else parts[0]
