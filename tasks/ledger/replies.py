"""Reading: from the flat replies of scripts to tasks, results, units and pages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from tasks.errors import ModelChanged
from tasks.item import FLOAT32_BYTES, Options, TextError
from tasks.ledger.task import ClaimedUnit, Committed, CommittedUnit, Lane, Result, State, Task, TaskPage

_END_ERRORS = {
    State.CANCELLED: TextError(
        "cancelled", "The task was cancelled before this item was encoded. Submit it again if you need it."
    ),
    State.EXPIRED: TextError(
        "expired", "The task's deadline passed before this item was encoded. Submit it with more time."
    ),
}
_CHANGED = TextError(
    ModelChanged.code,
    "Workers came to serve another model before this item was encoded. Submit all items again: vectors of different "
    "models cannot be compared.",
)
_LANES = {lane.encode(): lane for lane in Lane}
_STATES = {state.encode(): state for state in State}
_LOST = TextError("internal_error", "This item ended without a vector. Submit it again, and report it.")


def fields_from_reply(flat: Sequence[bytes]) -> dict[str, bytes]:
    """A flat HGETALL reply as a dict."""
    fields = iter(flat)
    return {key.decode(): value for key, value in zip(fields, fields, strict=True)}


def task_from_reply(task_id: str, reply: list[Any]) -> Task | None:
    """A task from `[hash, pttl, metadata, now, …]`; None when the hash is empty."""
    flat, pttl, metadata, now_ms, *_ = reply
    if not flat:
        return None
    f = dict(zip(flat[::2], flat[1::2], strict=True))
    return Task(
        id=task_id,
        queue=f[b"q"].decode(),
        lane=_LANES[f[b"lane"]],
        owner=f[b"owner"].decode(),
        state=_STATES[f[b"state"]],
        total=int(f[b"total"]),
        completed=int(f[b"completed"]),
        failed=int(f[b"failed"]),
        prompt_tokens=int(f.get(b"tokens", 0)),
        created_ms=int(f[b"created"]),
        started_ms=_optional(f, b"started"),
        finished_ms=_optional(f, b"finished"),
        deadline_ms=_optional(f, b"deadline"),
        expires_ms=int(now_ms) + int(pttl) if pttl > 0 else None,
        options=Options.from_text(f.get(b"options", b"")),
        metadata=orjson.loads(metadata) if metadata else None,
        model_changed=b"ended_by" in f,
        cost=int(f.get(b"cost", 0)),
        trace=f.get(b"trace", b"").decode(),
    )


def result_from_reply(task_id: str, reply: list[Any]) -> Result | None:
    """A result from the same reply with the flat result hash as its last element."""
    task = task_from_reply(task_id, reply)
    if task is None:
        return None
    parts, errors, truncated = _split(fields_from_reply(reply[4]))
    if len(parts) == 1 and parts[0][1] == task.total and parts[0][2]:  # as of each query: nothing is to be put together
        vectors = np.frombuffer(parts[0][2], dtype="<f4").reshape(task.total, -1).astype(np.float32)
        return Result(task=task, vectors=vectors, errors=errors, truncated=frozenset(truncated))
    dimension = next((len(data) // (FLOAT32_BYTES * items) for _, items, data in parts), 0)
    vectors = np.full((task.total, dimension), np.nan, dtype=np.float32)
    done = np.zeros(task.total, dtype=bool)
    for first, items, data in parts:
        vectors[first : first + items] = np.frombuffer(data, dtype="<f4").reshape(items, dimension)
        done[first : first + items] = True
    if task.state.terminal:
        missing = _CHANGED if task.model_changed else _END_ERRORS.get(task.state, _LOST)
        for index in np.flatnonzero(~done).tolist():
            errors.setdefault(index, missing)
    return Result(task=task, vectors=vectors, errors=errors, truncated=frozenset(truncated))


def committed_from_reply(task_id: str, reply: list[Any]) -> Committed | None:
    """Committed units from the same reply, as their workers left them."""
    task = task_from_reply(task_id, reply)
    if task is None:
        return None
    parts, errors, _ = _split(fields_from_reply(reply[4]))
    return Committed(task, tuple(CommittedUnit(*part) for part in sorted(parts)), errors)


def task_page_from_reply(reply: list[Any]) -> TaskPage:
    """A page of tasks from `list.lua`."""
    until, more, *rows = reply
    tasks = (task_from_reply(row[0].decode(), row[1:]) for row in rows)
    return TaskPage(tuple(task for task in tasks if task is not None), until.decode(), bool(more))


def unit_from_reply(raw: list[Any]) -> ClaimedUnit:
    """One unit of a claim."""
    task_id, unit_id, first, items, cost, attempts, offset, options, payload, trace, owner = raw
    return ClaimedUnit(
        task_id=task_id.decode(),
        unit_id=unit_id.decode(),
        first=int(first),
        items=int(items),
        cost=int(cost),
        attempts=int(attempts),
        offset=int(offset),
        options=Options.from_text(options),
        payload=payload,
        trace=trace.decode(),
        owner=owner.decode(),
    )


def id_page_from_reply(reply: list[Any]) -> tuple[list[str], bool]:
    """Of a list of ids: those of this page, and whether there are more."""
    return [name.decode() for name in reply[1]], bool(reply[0])


def _split(
    fields: Mapping[str, bytes],
) -> tuple[list[tuple[int, int, bytes]], dict[int, TextError], list[int]]:
    """Of a result hash: (first item, number of items, bytes) of its units, errors by index, truncated indexes."""
    parts: list[tuple[int, int, bytes]] = []
    errors: dict[int, TextError] = {}
    truncated: list[int] = []
    for name, value in fields.items():
        if name[0] == "v":
            first, items = name[1:].split("+")
            parts.append((int(first), int(items), value))
        else:
            extra = orjson.loads(value)
            errors |= {index: TextError(code, message) for index, code, message in extra["errors"]}
            truncated += extra["truncated"]
    return parts, errors, truncated


def _optional(fields: Mapping[bytes, bytes], name: bytes) -> int | None:
    return int(fields[name]) if name in fields else None
