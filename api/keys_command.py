"""`python -m api.keys_command`: API keys through Redis, behind `embedq keys create | export | import`.

Whoever may write to the Redis of a service is its operator. No header and no address proves as much: a proxy on the
same machine may send none of its own, and then every stranger calls from there.

An export is a line of JSON a key, with the digests of its texts, its owner, scopes and limits, and one for `anonymous`.
It gives keys and owners back to a Redis that has lost them.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.auth import REFRESH_S
from api.schemas.keys import NewKey
from api.services.keys import key_of, name_taken
from tasks.errors import Conflict, EmbedqError, Invalid, Unavailable
from tasks.ledger import ANONYMOUS, Ledger, operations
from tasks.records.api_keys import (
    ALL_SCOPES,
    USUAL_SCOPES,
    Anonymous,
    Key,
    Scope,
    StoredKeys,
    environment_owner,
    is_owner,
    new_key,
    read_keys,
    write_anonymous,
    write_key,
)
from tasks.wire.validation import validated
from worker_config.data_folder import operator_settings
from worker_config.settings import Settings, SettingsError

_USAGE, _REFUSED, _UNREACHABLE = 2, 3, 4
"""Exit codes, as docs/client.md lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints lines of JSON: what was asked for, or `code` and `message` of what was wrong; the exit code."""
    parser = argparse.ArgumentParser(prog="embedq keys")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--owner")
    parser.add_argument("what", choices=("create", "export", "import"))
    parser.add_argument("body", nargs="?", type=json.loads)
    options = parser.parse_args(arguments)
    try:
        settings = operator_settings(options.data)
        ledger = Ledger.connect(settings.redis_url, settings.redis_ack)
        ledger.run(operations.check_schema())
        if options.what == "export":
            sys.stdout.writelines(f"{line}\n" for line in exported(ledger))
            return 0
        create_it = options.what == "create"
        done: dict[str, Any] = (
            create(ledger, settings, options.body, owner=options.owner)
            if create_it
            else imported(ledger, settings, sys.stdin)
        )
    except EmbedqError as error:
        print(json.dumps({"code": error.code, "message": error.detail}))
        return _UNREACHABLE if isinstance(error, Unavailable) else _REFUSED
    except SettingsError as error:
        print(json.dumps({"code": "settings", "message": str(error)}))
        return _USAGE
    print(json.dumps(done), flush=True)
    time.sleep(2 * REFRESH_S)  # the next line of a script may use it: all processes know it by then
    return 0


def create(ledger: Ledger, settings: Settings, fields: dict[str, Any], *, owner: str | None = None) -> dict[str, str]:
    """Makes a key with these fields of `POST /v1/keys`; its name and text. The first one with `admin` has all scopes.

    `owner`: whose what it makes is; None: somebody new.

    Raises:
        RequestError: a field is wrong, or the name is taken.
        Conflict: so is the owner, or everything of it was deleted.
        RedisUnavailable, SchemaMismatch: this Redis cannot be used.
    """
    body = validated(NewKey, fields)
    found = ledger.run(read_keys(owners=[owner] if owner else []))
    keys = list(_keys(found))
    if owner is not None:
        _require_free(owner, keys, found, settings)
    managed = bool(settings.admin_keys) or any(_manages(key, found.now_s) for key in keys)
    text = new_key()
    key = key_of(
        body,
        text,
        found.now_s,
        taken=_of_environment(settings).values(),
        owner=owner,
        scopes=USUAL_SCOPES if managed else ALL_SCOPES,
    )
    try:
        made = ledger.run(write_key(key.name, b"", key.to_json()))
    except Unavailable:  # it may be stored, with a text that nobody is told
        with suppress(Unavailable):
            ledger.run(write_key(key.name, key.to_json(), b""))
        raise
    if not made:
        raise name_taken()
    return {"name": key.name, "key": text}


def exported(ledger: Ledger) -> Iterator[str]:
    """All keys, a line each. Raises `RedisUnavailable`."""
    found = ledger.run(read_keys())
    if found.anonymous:
        yield json.dumps({ANONYMOUS: found.anonymous.decode()})
    yield from (key.to_json().decode() for key in sorted(_keys(found), key=lambda key: key.name))


def imported(ledger: Ledger, settings: Settings, lines: Iterable[str]) -> dict[str, Any]:
    """Stores the keys of an export; how many there are now, and by name why others are not stored.

    Raises:
        Invalid: a line is of no export. Nothing is stored.
        RedisUnavailable, Forbidden: keys of the lines before are stored.
    """
    given = [_of_export(line, number) for number, line in enumerate(lines, 1)]
    found = ledger.run(read_keys(owners=[key.owner for key in given if isinstance(key, Key)]))
    fixed = _of_environment(settings)
    known = {key.name: key for key in _keys(found)}
    names = {key.owner: key.name for key in known.values()}
    number, refused = 0, dict[str, str]()
    for key in given:
        if isinstance(key, Anonymous):
            ledger.run(write_anonymous(b"", key))
        elif known.get(key.name) == key:
            number += 1
        elif key.owner in found.purged:
            refused[key.name] = "everything of its owner was deleted, and nobody may have the id again"
        elif key.name in fixed.values() or key.owner in fixed:
            refused[key.name] = "EMBEDQ_API_KEYS has a key with its name or its owner"
        elif names.setdefault(key.owner, key.name) != key.name or not ledger.run(
            write_key(key.name, b"", key.to_json())
        ):
            refused[key.name] = "another key has its name or its owner"
        else:
            number += 1
    return {"imported": number, "refused": refused}


def _of_export(line: str, number: int) -> Key | Anonymous:
    try:
        generations = json.loads(line).get(ANONYMOUS)
        return Anonymous.from_text(generations.encode()) if generations else Key.from_json(line.encode())
    except (ValueError, AttributeError):
        raise Invalid("invalid_value", f"Line {number} is not a line of `embedq keys export`.") from None


def _require_free(owner: str, keys: Iterable[Key], found: StoredKeys, settings: Settings) -> None:
    if not is_owner(owner):
        raise Invalid("invalid_value", "owner must be the id of an owner, as GET /v1/keys shows it.", param="owner")
    if owner in found.purged:
        raise Conflict(
            "key_exists", "Everything of this owner was deleted, and nobody may have the id again.", param="owner"
        )
    fixed = _of_environment(settings).get(owner)
    if fixed is not None:
        raise Conflict("key_exists", f"It is the owner of the key {fixed} of EMBEDQ_API_KEYS.", param="owner")
    name = next((key.name for key in keys if key.owner == owner), None)
    if name is not None:
        raise Conflict(
            "key_exists", f"It is the owner of the key {name}. Rotate that one for another text.", param="owner"
        )


def _of_environment(settings: Settings) -> dict[str, str]:
    """Names of the keys of the settings, by owner."""
    return {environment_owner(name): name for name, _ in settings.api_keys}


def _keys(found: StoredKeys) -> Iterator[Key]:
    for text in (found.records or {}).values():
        with suppress(ValidationError):
            yield Key.from_json(text)


def _manages(key: Key, now_s: float) -> bool:
    ended = key.revoked is not None or (key.expires is not None and key.expires <= now_s)
    return not ended and Scope.ADMIN in key.scopes


if __name__ == "__main__":
    sys.exit(main())
