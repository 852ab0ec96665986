"""The first key of a service, made as its operator makes it: through Redis."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx

from api.keys_command import create
from tests.processes import wait_until
from worker_config.settings import load_settings


def found(client: httpx.Client, redis_url: str, name: str = "ops") -> dict[str, str]:
    """The header of a new key with all scopes, which the server knows."""
    with ThreadPoolExecutor(1) as apart:  # the thread of a test with a browser has an event loop already
        made = apart.submit(asyncio.run, create(load_settings(redis_url=redis_url), {"name": name})).result()
    header = {"authorization": f"Bearer {made['key']}"}
    wait_until(lambda: client.get("/v1/key", headers=header).json().get("name") == name, message="the key is known")
    return header
