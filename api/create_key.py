"""`python -m api.create_key`: makes an API key through Redis, behind `embedq keys create` without `EMBEDQ_API_KEY`.

Whoever may write to the Redis of a service is its operator. No header and no address proves as much: a proxy on the
same machine may send none of its own, and then every stranger calls from there.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api.families.keys import CreateKey, known_limits, name_taken, new_key_of
from api.request.api_keys import REFRESH_S
from tasks.errors import EmbedqError, Unavailable
from tasks.ledger import Ledger, operations
from tasks.records.api_keys import ALL_SCOPES, USUAL_SCOPES, Key, Scope, read_keys, write_key
from tasks.wire.validation import validated
from worker_config.data_folder import operator_settings
from worker_config.settings import Settings, SettingsError

_USAGE, _REFUSED, _UNREACHABLE = 2, 3, 4
"""Exit codes, as docs/client.md lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line of JSON: `name` and `key`, or `code` and `message` of what was wrong; the exit code."""
    parser = argparse.ArgumentParser(prog="embedq keys create")
    parser.add_argument("--data", type=Path)
    parser.add_argument("body", type=json.loads)
    options = parser.parse_args(arguments)
    try:
        settings = operator_settings(options.data)
        made = create(Ledger.connect(settings.redis_url, settings.redis_ack), settings, options.body)
    except EmbedqError as error:
        print(json.dumps({"code": error.code, "message": error.detail}))
        return _UNREACHABLE if isinstance(error, Unavailable) else _REFUSED
    except SettingsError as error:
        print(json.dumps({"code": "settings", "message": str(error)}))
        return _USAGE
    print(json.dumps(made), flush=True)
    time.sleep(2 * REFRESH_S)  # the next line of a script may use it: all processes know it by then
    return 0


def create(ledger: Ledger, settings: Settings, fields: dict[str, Any]) -> dict[str, str]:
    """Makes a key with these fields of `POST /v1/keys`; its name and text. The first one with `admin` has all scopes.

    Raises:
        RequestError: a field is wrong, or the name is taken.
        RedisUnavailable, SchemaMismatch: this Redis cannot be used.
    """
    ledger.run(operations.check_schema())
    body = validated(CreateKey, fields, {"limits": known_limits})
    reading = ledger.run(read_keys())
    texts = (reading.records or {}).values()
    managed = bool(settings.admin_keys) or any(_manages(text, reading.now_s) for text in texts)
    taken = [name for name, _ in settings.api_keys]
    new = new_key_of(body, taken, USUAL_SCOPES if managed else ALL_SCOPES)
    record = new.record(reading.now_s).to_json()
    try:
        made = ledger.run(write_key(body.name, b"", record))
    except Unavailable:  # it may be stored, with a text that nobody is told
        with suppress(Unavailable):
            ledger.run(write_key(body.name, record, b""))
        raise
    if not made:
        raise name_taken()
    return {"name": body.name, "key": new.text}


def _manages(text: bytes, now_s: float) -> bool:
    try:
        record = Key.from_json(text)
    except ValidationError:
        return False
    ended = record.revoked is not None or (record.expires is not None and record.expires <= now_s)
    return not ended and Scope.ADMIN in record.scopes


if __name__ == "__main__":
    sys.exit(main())
