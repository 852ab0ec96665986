"""The first key of a service, made as its operator makes it: through Redis."""

import httpx

from api.keys_command import create
from stack.testing import wait_until
from tasks.ledger import Ledger
from worker_config.settings import Settings


def found(client: httpx.Client, redis_url: str, name: str = "ops") -> dict[str, str]:
    """The header of a new key with all scopes, which the server knows."""
    ledger = Ledger.connect(redis_url)
    header = {"authorization": f"Bearer {create(ledger, Settings(), {'name': name})['key']}"}
    ledger.close()
    wait_until(lambda: client.get("/v1/key", headers=header).json().get("name") == name, message="the key is known")
    return header
