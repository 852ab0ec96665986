"""API keys: static, known by their SHA-256 only. The name of a key is the owner of its tasks."""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from starlette.datastructures import Headers

from tasks.errors import Unauthenticated
from tasks.ledger import ANONYMOUS

_BEARER = "bearer"


class KeyRing:
    """The accepted keys.

    Args:
        keys: pairs of name and hexadecimal SHA-256. Without any, everybody is `ANONYMOUS` and keys are not looked at.
    """

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        self._keys = tuple((name, bytes.fromhex(digest)) for name, digest in keys)

    def owner(self, headers: Headers) -> str:
        """The name of the key that came with the request; of several, the first that is known.

        Raises:
            Unauthenticated: none came, or only wrong ones.
        """
        if not self._keys:
            return ANONYMOUS
        presented = _presented(headers)
        if not presented:
            raise Unauthenticated("An API key is needed: send it as `Authorization: Bearer <key>` or `x-api-key`.")
        digests = [sha256(key.encode("latin-1")).digest() for key in presented]
        # All are compared, in constant time each, so that the time tells nothing about which one nearly fits.
        names = [name for digest in digests for name, known in self._keys if hmac.compare_digest(known, digest)]
        if not names:
            raise Unauthenticated("This API key is not known here.")
        return names[0]


def _presented(headers: Headers) -> list[str]:
    # All of them: many clients insist on a Bearer key. They get a placeholder there, and the real key in x-api-key.
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    keys = [bearer.strip() if scheme.lower() == _BEARER else None]
    keys += [headers.get("api-key"), headers.get("x-api-key")]  # Azure's name, and everybody else's
    return [key for key in keys if key]
