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
from tasks.records.keys import ALL_SCOPES, USUAL_SCOPES, KeyRecord, Scope, read_keys, write_key
from tasks.wire.validation import validated
from worker_config.settings import Settings, SettingsError, load_settings

ADDRESS_FILE = "redis-url"
"""In the data folder of `embedq up`, for its user alone."""
_USAGE, _REFUSED, _UNREACHABLE = 2, 3, 4
"""Exit codes, as docs/client.md lists them."""


class NoRedis(Exception):
    """Nobody has said where the Redis of the service is. The message says how to."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line of JSON: `name` and `key`, or `code` and `message` of what was wrong; the exit code."""
    parser = argparse.ArgumentParser(prog="embedq keys create")
    parser.add_argument("--data", type=Path, default=Path(".embedq"))
    parser.add_argument("body", type=json.loads)
    options = parser.parse_args(arguments)
    try:
        settings = load_settings()
        if "redis_url" not in settings.model_fields_set:
            settings = load_settings(redis_url=_address_in(options.data))
        made = create(Ledger.connect(settings.redis_url, settings.redis_ack), settings, options.body)
    except EmbedqError as error:
        print(json.dumps({"code": error.code, "message": error.detail}))
        return _UNREACHABLE if isinstance(error, Unavailable) else _REFUSED
    except (NoRedis, SettingsError) as error:
        print(json.dumps({"code": "settings", "message": str(error)}))
        return _USAGE
    time.sleep(2 * REFRESH_S)  # the next line of a script may use it: all processes know it by then
    print(json.dumps(made))
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
    managed = bool(settings.admin_keys) or any(map(_manages, (reading.records or {}).values()))
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


def _manages(text: bytes) -> bool:
    try:
        record = KeyRecord.from_json(text)
    except ValidationError:
        return False
    return record.revoked is None and Scope.ADMIN in record.scopes


def _address_in(data: Path) -> str:
    file = data / ADDRESS_FILE
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        raise NoRedis(
            f"No Redis is named: set EMBEDQ_REDIS_URL as the roles have it, or name the data folder of `embedq up` "
            f"(--data; {file} is not there). To ask a server instead, set EMBEDQ_API_KEY to a key with the scope admin."
        ) from None
    except OSError as error:
        raise NoRedis(f"{file} cannot be read: {error.strerror}. It is for the user of `embedq up`.") from None


if __name__ == "__main__":
    sys.exit(main())
