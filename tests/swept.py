"""The sweep of a running documents worker, without its minute of grace and its ten minutes of doubt."""

from pathlib import Path
from typing import cast

import redis

from stack.testing import wait_until
from tasks.documents.sweep import SWEEPER
from tasks.storage.storage import Storage


def swept(client: redis.Redis, storage: Path, folder: str) -> None:
    """Returns when nothing is left in a folder of the storage: all that would be due in a minute is due now.

    Another Redis may have swept before, or the same one before its restart.
    """
    (storage / SWEEPER).unlink(missing_ok=True)
    place = Storage.open(str(storage))

    def empty() -> bool:
        for entry in cast("list[bytes]", client.zrange("eq:litter", 0, -1)):
            client.zadd("eq:litter", {entry: 0}, xx=True)
        return not any(place.stored(folder))

    wait_until(empty, message="the sweep")
