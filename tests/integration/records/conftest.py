"""Records are tested like the ledger: on a Redis that does not wait for the disk, under a clock that stands still."""

from tests.integration.ledger.conftest import driver, redis_server

__all__ = ["driver", "redis_server"]
