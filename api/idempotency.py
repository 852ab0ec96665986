"""Which `Idempotency-Key`s are valid, and the digests by which a repetition of a call is known."""

import re
from collections.abc import Iterable
from hashlib import sha256

from tasks.errors import Invalid
from tasks.ledger.task import Alias

HEADER = "Idempotency-Key"
ABOUT = "Makes a repetition safe: the same key and body get the same object again."
_MAX_KEY_CHARS = 255
KEY_SCHEMA = {"type": "string", "minLength": 1, "maxLength": _MAX_KEY_CHARS, "pattern": "^[ -~]*$"}
"""Of a valid key, for the document."""
DIGEST_CHARS = 32
_KEY = re.compile(rf"[ -~]{{1,{_MAX_KEY_CHARS}}}")


def checked_key(key: str | None) -> str | None:
    """The key, if there is one.

    Raises:
        Invalid: it is empty, too long, or not of printable ASCII. Servers and proxies read other bytes of a header
            in different ways, so a repetition might not be known again.
    """
    if key is not None and not _KEY.fullmatch(key):
        raise Invalid(
            "invalid_value", f"{HEADER} must have 1 to {_MAX_KEY_CHARS} printable ASCII characters.", param=HEADER
        )
    return key


def key_digests(key: str | None, request: bytes) -> tuple[str, str] | None:
    """Those of a checked key, if there is one."""
    return None if key is None else digests_of(key, request)


def digests_of(key: str, request: bytes) -> tuple[str, str]:
    """Digests of a key and of the request that came with it, as batches and ingestions keep them."""
    return _digest([key.encode()]), _digest([request])


def alias_of_key(key: str | None, body: bytes) -> Alias | None:
    """The second name of a task that came with this key: only the same bytes find it again."""
    # The bytes, not what they mean: orjson reads deeper nesting than it writes, and a client repeats the same bytes.
    return None if key is None else Alias(_digest([b"key", key.encode()]), _digest([body]), join=False)


def alias_of_work(parts: Iterable[bytes]) -> Alias:
    """The second name of a synchronous call: another one with the same parts joins its work."""
    digest = _digest([b"work", *parts])
    return Alias(digest, digest, join=True)


def _digest(parts: Iterable[bytes]) -> str:
    whole = sha256()
    for part in parts:
        # The length first, so that no two lists of parts look the same. It also keeps the kinds of alias apart.
        whole.update(len(part).to_bytes(8))
        whole.update(part)
    return whole.hexdigest()[:DIGEST_CHARS]
