"""`python -m api.redis_command`: the Redis of the settings, for `embedq doctor` where no server answers."""

import asyncio
import json
import sys

from api.schemas.service import RedisChecks
from tasks.errors import EmbedqError
from tasks.ledger.client import AsyncLedger
from worker_config.data_folder import operator_settings
from worker_config.settings import Settings, SettingsError


def main() -> int:
    """Prints JSON: what `GET /v1/service/redis` answers, or `message` if it cannot serve. 2: no Redis is named."""
    try:
        print(asyncio.run(_asked(operator_settings(None))))
    except EmbedqError as error:
        print(json.dumps({"message": error.detail}))
    except SettingsError:
        return 2
    return 0


async def _asked(settings: Settings) -> str:
    ledger = AsyncLedger.connect(settings.redis_url, settings.redis_ack, settings.sentinels)
    try:
        facts = await ledger.try_out()
    finally:
        await ledger.close()
    return RedisChecks.model_validate({"checks": facts.checks(settings.redis_ack)}).model_dump_json()


if __name__ == "__main__":
    sys.exit(main())
