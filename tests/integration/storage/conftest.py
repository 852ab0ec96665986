"""The web tier's own fixtures, on a bucket."""

from tests.integration.api.conftest import serve

__all__ = ["serve"]
