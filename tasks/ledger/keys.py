"""The data model: the one place that names keys.

`R` is the root (`eq`), `Q` is `R:q:{model}`, `{model}` the served name. Scripts build the same names in
`lua/prelude.lua`; all keys live in one Redis instance (derived keys rule Redis Cluster out).

| key | type | meaning | life |
|---|---|---|---|
| `R:schema` | string | version of this table | for ever |
| `R:models` | hash model -> JSON `ModelEntry` | models that a worker has served | for ever |
| `R:memory` | string | percent of `maxmemory` in use, as last seen by WATCH | 60 s |
| `Q:state` | hash | backlog `cost_`, `tasks_` per lane, `bytes`; `rate`; bell time `bell`, its `rings`; `credit` of the bulk lane; virtual times `vt_{lane}`, per owner `pass_{lane}:{owner}`, `tvt_{lane}:{owner}`; counters `n_*` | for ever |
| `Q:{lane}` | zset owner -> pass | owners with ready units; the lowest is next | while ready |
| `Q:{lane}:{owner}` | zset task -> tag | that owner's tasks with ready units; the lowest is next | while ready |
| `Q:leases` | zset token -> deadline | one entry per claim | while leased |
| `Q:claim:{token}` | set of "task unit" | what that claim holds. Never expires by itself: its units would be lost | while leased |
| `Q:lingering` | zset worker -> until | workers blocked for work | while lingering |
| `Q:deadlines` | zset task -> deadline | ends tasks even when no worker lives | while open |
| `Q:workers` | zset worker -> until | workers that beat | pruned by beats and WATCH |
| `Q:rates` | hash worker -> tokens/s | | with the worker |
| `Q:worker:{id}` | string | JSON `WorkerEntry` | three beats |
| `R:task:{id}` | hash | state, counts, options, next fresh unit, number of units that came back | TTL once terminal |
| `R:units:{id}` | hash `u{unit}` -> "first items cost attempts root token", `p{root}` -> payload | units that are not done; deleted one by one at COMMIT | gone at the end |
| `R:back:{id}` | list of unit ids | units that came back; taken before fresh ones | gone at the end |
| `R:result:{id}` | hash `v{first}+{items}` -> float32 bytes, `x{first}` -> JSON errors and truncations | | TTL once terminal |
| `R:meta:{id}` | string | JSON metadata of the client (kept out of the task hash: a value above 64 bytes would double its memory) | TTL once terminal |
| `R:alias:{owner}:{name}` | string "task digest" | repetitions of a request find their task | as long as the task |

Channels (no keys): `R:changed`, one message per script that changed tasks: their ids, space-separated, those that
ended first and separated from the others by a "|". `Q:wake:{worker}`: to one lingering worker.
"""

SCHEMA_VERSION = 1
ROOT = "eq"
ANONYMOUS = "anonymous"
"""Owner of tasks that came in without an API key."""

CHANGED_CHANNEL = f"{ROOT}:changed"


def queue_key(model: str, part: str, root: str = ROOT) -> str:
    """`Q:{part}` of the table above."""
    return f"{root}:q:{model}:{part}"


def task_key(kind: str, task_id: str, root: str = ROOT) -> str:
    """`R:{kind}:{task_id}` of the table above."""
    return f"{root}:{kind}:{task_id}"


def wake_channel(model: str, worker: str, root: str = ROOT) -> str:
    """The channel on which a lingering worker is woken."""
    return queue_key(model, f"wake:{worker}", root)
