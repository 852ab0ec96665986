"""Forms that the values of settings have. Each function takes what the environment says and raises `ValueError`."""

import re
from typing import Any
from urllib.parse import urlsplit

_SHA256_HEX_CHARS = 64
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")


def redis_url(value: str) -> str:
    """A URL of a Redis. It may hold a password, so it is not repeated, and neither is what urllib says about it."""
    try:
        scheme, _ = urlsplit(value).scheme, urlsplit(value).port
    except ValueError:
        raise ValueError(
            "cannot be read: the port must be 0 to 65535, an IPv6 address stands in [], "
            "and / ? # [ ] @ : in a password are written as %2F and so on"
        ) from None
    if scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("must start with redis://, rediss:// or unix://")
    return value


def storage_url(value: str) -> str:
    """A folder, or the URL of a bucket."""
    scheme, separator, _ = value.partition("://")
    if separator and scheme not in {"file", "s3", "memory"}:
        raise ValueError("must be a folder, or start with file:// or s3://")
    return value


def listed(value: Any) -> Any:
    """The parts of a comma-separated string; anything else as it is."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def origins(value: Any) -> Any:
    """Origins of web pages, comma-separated."""
    if not isinstance(value, str):
        return value
    found = tuple(part.lower() for part in listed(value))
    if not all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in found):
        raise ValueError("each is *, or an origin such as https://app.example.org:8443, without a path or a last /")
    return found


def api_keys(value: Any) -> Any:
    """(name, SHA-256 in hexadecimal digits) of each `name:sha256`, comma-separated."""
    if not isinstance(value, str):
        return value
    keys = []
    for part in listed(value):
        name, _, digest = part.partition(":")
        digest = digest.lower()
        named = name.replace("-", "").replace("_", "").isalnum() and len(name) <= 48  # noqa: PLR2004
        if not named or len(digest) != _SHA256_HEX_CHARS or not set(digest) <= set("0123456789abcdef"):
            # Never echo the value: people paste the key itself here by mistake.
            raise ValueError(
                "each entry is name:sha256 with 64 hexadecimal digits (printf %s 'the-key' | sha256sum), "
                "names of letters, digits, '-' and '_'"
            )
        keys.append((name, digest))
    if len({name for name, _ in keys}) != len(keys):
        raise ValueError("two keys have the same name")
    return tuple(keys)
