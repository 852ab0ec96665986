"""The sweep of a running documents worker, without its ten minutes of doubt."""

import re
from pathlib import Path
from typing import cast

import redis

from tasks.storage.storage import Storage
from tasks.storage.sweep import SWEEPER
from tests.processes import wait_until


def swept(client: redis.Redis, storage: Path, folder: str, parts: str) -> None:
    """Returns when no object below a folder has a name with one of these parts. That takes a minute.

    Another Redis may have swept before, or the same one before its restart. What files have left is due now.
    """
    (storage / SWEEPER).unlink(missing_ok=True)
    place, left = Storage.open(str(storage)), re.compile(parts)

    def empty() -> bool:
        for entry in cast("list[bytes]", client.zrange("eq:litter", 0, -1)):
            client.zadd("eq:litter", {entry: 0}, xx=True)
        return not any(left.search(stored.name) for stored in place.stored(folder))

    wait_until(empty, message="the sweep")
