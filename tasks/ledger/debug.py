"""`embedq debug`: what Redis holds of a task, a queue or an owner, as JSON. It changes nothing.

Texts, vectors and the client's metadata are shown by their size in bytes.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import redis

from tasks.errors import EmbedqError
from tasks.ledger.client import Ledger
from tasks.ledger.packed import numbers, record_of
from tasks.ledger.read import check_schema
from tasks.ledger.redis_keys import SCHEMA, owner_key, queue_key, task_key
from tasks.ledger.scripts import Operation
from worker_config.data_folder import operator_settings
from worker_config.settings import SettingsError

_FIRST = 20
"""Entries of a line that are shown."""

_OF_QUEUE = ["state", "counts", "online", "bulk", "claims", "leases", "lingering", "workers", "entries", "loading"]

Shown = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one value; 0, or 1 where there is none or it could not be read."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    parser = argparse.ArgumentParser(prog="embedq debug", description=__doc__)
    parser.add_argument("kind", choices=_SHOWN, help="of what")
    parser.add_argument("name", help="id of a task or an owner, served name of a model; @documents: the other queue")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder of the local stack that is meant")
    args = parser.parse_args(argv)
    try:
        settings = operator_settings(args.data)
        ledger = Ledger.connect(settings.redis_url, sentinels=settings.sentinels)
        if ledger.run(Operation(lambda replies: replies[0], commands=(("EXISTS", SCHEMA),))):
            ledger.run(check_schema())
        shown = _SHOWN[args.kind](ledger.client, args.name)
    except (EmbedqError, SettingsError) as error:
        print(f"embedq debug: {error.detail if isinstance(error, EmbedqError) else error}", file=sys.stderr)
        return 1
    if not shown:
        print(f"embedq debug: this Redis has no {args.kind} {args.name}", file=sys.stderr)
        return 1
    print(orjson.dumps(shown, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode())
    return 0


def show_task(client: redis.Redis, task_id: str) -> Shown:
    """The record and the pieces of a task; empty where there is none."""
    fields: Mapping[bytes, bytes] = client.hgetall(task_key(task_id))  # type: ignore[assignment]  # not asynchronous
    shown: Shown = {}
    for name, value in sorted(fields.items()):
        kind, rest = chr(name[0]), name[1:].decode()
        if kind == "s":
            shown["record"] = record_of(value)
        elif kind == "u":  # first items cost deaths offset bytes token
            shown.setdefault("pieces", {})[rest] = value.decode()
        elif kind == "x":
            shown.setdefault("errors", {})[rest] = orjson.loads(value)
        else:
            what = {"m": "metadata_bytes", "d": "payload_bytes", "v": "outcome_bytes"}[kind]
            shown.setdefault(what, {})[rest] = len(value)
    return shown


def show_queue(client: redis.Redis, name: str) -> Shown:
    """Sums, lines, claims and workers of a queue, `_FIRST` of each line; empty where there is none."""
    shown = {part: _value(client, queue_key(name, part)) for part in _OF_QUEUE}
    return {part: value for part, value in shown.items() if value}


def _value(client: Any, key: str) -> Shown:
    match client.type(key):
        case b"hash":
            return {field.decode(): value.decode() for field, value in client.hgetall(key).items()}
        case b"zset":
            return {member.decode(): at for member, at in client.zrange(key, 0, _FIRST - 1, withscores=True)}
        case _:
            return numbers(client.get(key))


_SHOWN: Mapping[str, Callable[[redis.Redis, str], Shown]] = {
    "task": show_task,
    "queue": show_queue,
    "owner": lambda client, owner: _value(client, owner_key(owner)),
}


if __name__ == "__main__":
    sys.exit(main())
