"""Reading: tasks, results, lists (`lua/list.lua`). But for lists no script is needed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import orjson

from tasks.errors import SchemaMismatch
from tasks.item import Options, TextError
from tasks.ledger.packed import record_of
from tasks.ledger.redis_keys import SCHEMA_VERSION, task_key
from tasks.ledger.scripts import Operation
from tasks.ledger.task import Lane, Result, State, StoredPiece, Task

LOOK = 250
"""Entries that one call looks at, at most: many may be of tasks in other states, or gone; Redis is not held long."""


def read_task(task_id: str) -> Operation[Task | None]:
    """The state of one task; None when the ledger does not hold it."""
    return Operation(lambda replies: task_of(task_id, *replies[0]), commands=(("HMGET", task_key(task_id), "s", "m"),))


def read_tasks(task_ids: Sequence[str]) -> Operation[list[Task | None]]:
    """The states of several tasks, in the order asked for (metadata left out)."""
    ids = tuple(task_ids)

    def read(replies: list[Any]) -> list[Task | None]:
        return [task_of(task_id, record) for task_id, record in zip(ids, replies, strict=True)]

    return Operation(read, commands=tuple(("HGET", task_key(task_id), "s") for task_id in ids))


def read_result(task_id: str) -> Operation[Result | None]:
    """The state and everything committed so far of one task, of one moment; None when the ledger does not hold it."""
    return Operation(lambda replies: result_of(task_id, replies[0]), commands=(("HGETALL", task_key(task_id)),))


def list_tasks(
    owner: str, *, limit: int, after: str = "", states: Sequence[State] = (), look: int = LOOK
) -> Operation[tuple[list[Task], str, bool]]:
    """Up to `limit` of an owner's listed tasks in one of `states` (none: all), older than the one with id `after`.

    The newest first; behind them the place up to which it was looked, "" if there was nothing to look at, and whether
    there may be more behind that place. It looks at `look` entries at most, so there may be more although few are told.
    """

    def read(reply: list[Any]) -> tuple[list[Task], str, bool]:
        until, more, *rows = reply
        tasks = (task_of(task_id.decode(), record, metadata) for task_id, record, metadata in rows)
        return [task for task in tasks if task is not None], until.decode(), bool(more)

    return Operation(read, "list", "", (owner, after, limit, max(look, limit + 1), " ".join(states)))


def results_in(message: bytes) -> Iterator[Result]:
    """The results in one message of `redis_keys.answers_channel`."""
    end = message.index(b"\n")
    ends = list(accumulate(map(int, message[:end].split()), initial=end + 1))
    pieces = (message[start:stop] for start, stop in pairwise(ends))
    for task_id in pieces:
        size = int(next(pieces))
        record, *flat = (next(pieces) for _ in range(size + 1))
        result = result_of(task_id.decode(), {b"s": record, **fields_of(flat)})
        if result is not None:
            yield result


def fields_of(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """A flat list of names and values as a dict."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def task_of(task_id: str, packed: bytes | None, metadata: bytes | None = None) -> Task | None:
    """A task from its packed record; None when there is none."""
    if packed is None:
        return None
    r = record_of(packed)
    return Task(
        id=task_id,
        queue=r["in_queue"],
        lane=Lane(r["lane"]),
        owner=r["owner"],
        state=State(r["state"]),
        total=r["total"],
        completed=r["completed"],
        failed=r["failed"],
        prompt_tokens=r["tokens"],
        created_ms=r["created"],
        started_ms=r["started"] or None,
        finished_ms=r["finished"] or None,
        deadline_ms=r["deadline"] or None,
        expires_ms=r["finished"] + r["ttl"] if r["finished"] else None,
        options=Options.from_text(r["options"]),
        metadata=orjson.loads(metadata) if metadata else None,
        cost=int(r["cost"]),
        trace=r["trace"],
        deaths=r.get("deaths", 0),
        died_ms=r.get("died", 0) or None,
    )


def result_of(task_id: str, fields: Mapping[bytes, bytes]) -> Result | None:
    """A result from the fields of a task's hash; None when there are none."""
    task = task_of(task_id, fields.get(b"s"), fields.get(b"m"))
    if task is None:
        return None
    pieces: list[StoredPiece] = []
    errors: dict[int, TextError] = {}
    truncated: list[int] = []
    for name, value in fields.items():
        if name[:1] == b"v":
            first, items = name[1:].split(b"+")
            pieces.append(StoredPiece(int(first), int(items), value))
        elif name[:1] == b"x":
            extra = orjson.loads(value)
            errors |= {index: TextError(code, message) for index, code, message in extra["errors"]}
            truncated += extra["truncated"]
    return Result(task, sorted(pieces), errors, frozenset(truncated))


# ---- what is written once --------------------------------------------------------------------------------------------


def check_schema() -> Operation[bool]:
    """Claims an empty Redis for this version of the data model, and whether it did so. One of several that see it.

    Raises on reading:
        SchemaMismatch: another version's data is there.
    """

    def read(reply: list[Any]) -> bool:
        claimed, version = int(reply[0]), int(reply[1])
        if version != SCHEMA_VERSION:
            raise SchemaMismatch(
                f"This Redis holds embedq data of schema {version}; this version needs {SCHEMA_VERSION}. "
                f"Use an empty Redis database (EMBEDQ_REDIS_URL), or the version that wrote this one."
            )
        return bool(claimed)

    return Operation(read, "schema", arguments=(SCHEMA_VERSION,))


def reference(revision: str, vectors: bytes) -> Operation[bytes]:
    """Stores the vectors that a revision stands for, unless there are some; those that are stored now."""
    return Operation(bytes, "reference", arguments=(revision, vectors))
