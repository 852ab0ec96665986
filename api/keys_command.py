"""`python -m api.keys_command`: API keys through Redis, behind `embedq keys create | export | import`.

Whoever may write to the Redis of a service is its operator. No header and no address proves as much: a proxy on the
same machine may send none of its own, and then every stranger calls from there.

An export is a line of JSON a key, with the digests of its texts, its owner, scopes and limits, and one a purged owner.
It gives keys and owners back to a Redis that has lost them.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from api.auth import REFRESH_S, Keys
from api.schemas.keys import NewKey
from api.services.keys import KeyService
from tasks.errors import EmbedqError, Invalid, Unavailable
from tasks.ledger.client import AsyncLedger
from tasks.ledger.read import check_schema
from tasks.records.api_keys import is_owner
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
        if options.what == "export":
            sys.stdout.write(asyncio.run(_exported(settings)))
            return 0
        done = asyncio.run(
            create(settings, options.body, owner=options.owner) if options.what == "create" else _imported(settings)
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


async def create(settings: Settings, fields: Mapping[str, Any], *, owner: str | None = None) -> dict[str, str]:
    """Makes a key with these fields of `POST /v1/keys`; its name and text. The first one with `admin` has all scopes.

    `owner`: whose what it makes is; None: somebody new.

    Raises:
        RequestError: a field is wrong, or the name is taken.
        Conflict: so is the owner, or everything of it was deleted.
        RedisUnavailable, SchemaMismatch: this Redis cannot be used.
    """
    body = validated(NewKey, fields)
    if owner is not None and not is_owner(owner):
        raise Invalid("invalid_value", "owner must be the id of an owner, as GET /v1/keys shows it.", param="owner")
    async with _service(settings) as service:
        key = await service.create(body, owner=owner)
    return {"name": key.name, "key": key.key}


async def _exported(settings: Settings) -> str:
    async with _service(settings) as service:
        return "".join(f"{line}\n" for line in await service.export())


async def _imported(settings: Settings) -> dict[str, Any]:
    async with _service(settings) as service:
        return await service.import_lines(sys.stdin)


@asynccontextmanager
async def _service(settings: Settings) -> AsyncIterator[KeyService]:
    ledger = AsyncLedger.connect(settings.redis_url, settings.redis_ack, settings.sentinels)
    try:
        await ledger.run(check_schema())
        yield KeyService(Keys(settings, ledger), ledger)
    finally:
        await ledger.close()


if __name__ == "__main__":
    sys.exit(main())
