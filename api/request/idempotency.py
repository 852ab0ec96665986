"""`Idempotency-Key`: one rule for the keys of all routes, and the digests that are stored of them."""

import re
from hashlib import sha256

from tasks.errors import InvalidValue

HEADER = "Idempotency-Key"
MAX_KEY_CHARS = 255
DIGEST_CHARS = 32
_KEY = re.compile(rf"[ -~]{{1,{MAX_KEY_CHARS}}}")
KEY_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS, "pattern": "^[ -~]*$"}
"""The rule in the words of OpenAPI."""


def checked_key(key: str | None) -> str | None:
    """The key, if there is one.

    Raises:
        InvalidValue: it is empty, too long, or not of printable ASCII. Servers and proxies read other bytes of a header
            in different ways, so a repetition might not be known again.
    """
    if key is not None and not _KEY.fullmatch(key):
        raise InvalidValue(f"{HEADER} must have 1 to {MAX_KEY_CHARS} printable ASCII characters.", param=HEADER)
    return key


def key_digests(key: str | None, request: bytes) -> tuple[str, str] | None:
    """Digests of a checked key and of the request that came with it, as batches and ingestions keep them."""
    return None if key is None else (_digest(key.encode()), _digest(request))


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:DIGEST_CHARS]
