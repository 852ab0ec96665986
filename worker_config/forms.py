"""Forms that the values of settings have. Each function takes what the environment says and raises `ValueError`."""

import hashlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from worker_config.redis_connection import RedisUrl

_SHA256_HEX_CHARS = 64
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_ANONYMOUS = "anonymous"
_KEY_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
_SINK_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
_BETWEEN_SINKS = re.compile(r",(?=[^,=/@]*=)")
_SERVED_NAME = re.compile(r"[\w./:@+-]{1,200}")
_HUB = re.compile(r"(https?://)?[\w-]+(\.[\w-]+)+/(?=[^/]+/[^/]+$)")
"""In front of the id of a model: the address of a hub."""
_SCHEMES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}
"""Other names that a root of ingestion may have for the place of a storage."""
_HOST = re.compile(r"[a-z0-9._-]{1,253}")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")


def redis_url(value: str) -> str:
    """A URL of a Redis, or of the Sentinels of one. It may hold a password, so it is not repeated."""
    RedisUrl.parse(value)
    return value


def storage_url(value: str) -> str:
    """A folder, or the URL of a bucket."""
    scheme, separator, _ = value.partition("://")
    if separator and scheme not in {"file", "s3", "gs", "az", "memory"}:
        raise ValueError("must be a folder, or start with file://, s3://, gs:// or az://")
    return value


def datasets(value: str) -> str:
    """A folder, or the URL of a database."""
    scheme, separator, _ = value.partition("://")
    if separator and scheme not in {"file", "postgresql", "postgres"}:
        raise ValueError("must be a folder on a local disk, or start with postgresql://")
    return value


def listed(value: Any) -> Any:
    """The parts of a comma-separated string; anything else as it is."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def served_names(value: Any) -> Any:
    """Names of a model, comma-separated; none twice."""
    names = listed(value)
    for name in names:
        if not _SERVED_NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} must have 1 to 200 letters, digits and _ . / : @ + -")
    if len(set(names)) != len(names):
        raise ValueError("names the same model name twice")
    return names


def roots(value: Any) -> Any:
    """Folders and URL prefixes, comma-separated; none relative: the roles may run in different folders."""
    paths = listed(value)
    for root in paths:
        if not root.startswith("/") and "://" not in root:
            raise ValueError(f"{root!r:.80} must be an absolute path, or a URL such as s3://bucket/prefix")
    return paths


def shows(root: str, place: str) -> bool:
    """Whether what is below a root of ingestion holds some of a place: a folder, or the URL of a bucket.

    Names that begin with a dot are not shown.
    """
    scheme, _, path = root.partition("://") if "://" in root else ("file", "", root)
    other, _, other_path = place.partition("://") if "://" in place else ("file", "", place)
    if _SCHEMES.get(scheme, scheme) != other:
        return False
    if scheme == "file":
        above, below = Path(unquote(path)).resolve(), Path(unquote(other_path)).expanduser().resolve()
    else:
        above, below = Path("/", path), Path("/", other_path)
    inside = below.is_relative_to(above) and not any(part.startswith(".") for part in below.relative_to(above).parts)
    return inside or above.is_relative_to(below)


def model(name: str) -> str:
    """A folder, or the id of a model on the hub, perhaps with `@` and a revision."""
    if name.startswith("@"):
        raise ValueError("must not begin with @")
    if (":" not in name and not _HUB.match(name)) or name.startswith(("/", ".", "~")) or Path(name).is_dir():
        return name
    hub_id = _HUB.sub("", name).replace(":", "@")
    pinned = hub_id if "@" in hub_id else f"{hub_id}@main"
    raise ValueError(
        "this is neither a folder nor the id of a model on the hub. Such an id is "
        f"{pinned.partition('@')[0]}; {pinned} names a revision of it (a commit, tag or branch)"
    )


def queue_name(name: str) -> str:
    """A name under which a model is served. Keys in Redis have it between colons; queues of no model begin with @."""
    if name.startswith("@"):
        raise ValueError("must not begin with @")
    if ":" in name:
        raise ValueError("must not hold a colon; use - or _ in its place")
    return name


def sinks(value: Any) -> Any:
    """(name, URL) of each `name=postgresql://…`, comma-separated. A URL may hold commas itself, between hosts."""
    if not isinstance(value, str):
        return value
    pairs = [_sink(part.strip(" ,")) for part in _BETWEEN_SINKS.split(value) if part.strip(" ,")]
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("two sinks have the same name")
    return tuple(pairs)


def origins(value: Any) -> Any:
    """Origins of web pages, comma-separated."""
    if not isinstance(value, str):
        return value
    listed_origins = tuple(part.lower() for part in listed(value))
    if not all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in listed_origins):
        raise ValueError("each is *, or an origin such as https://app.example.org:8443, without a path or a last /")
    return listed_origins


def hosts(value: Any) -> Any:
    """Names of hosts, comma-separated."""
    if not isinstance(value, str):
        return value
    names = tuple(part.lower() for part in listed(value))
    if not all(host == "*" or _HOST.fullmatch(host) for host in names):
        raise ValueError("each is *, or a name such as embed.example.org, without a scheme, a port or a path")
    return names


def is_key_name(name: str) -> bool:
    """Whether an API key may have this name: ASCII letters and digits, '-' and '_'."""
    return _KEY_NAME.fullmatch(name) is not None and name != _ANONYMOUS


def api_keys(value: Any) -> Any:
    """(name, SHA-256 in hexadecimal digits) of each `name:sha256`, comma-separated."""
    if not isinstance(value, str):
        return value
    keys = []
    for part in listed(value):
        name, _, digest = part.partition(":")
        digest = digest.lower()
        if name == _ANONYMOUS or digest == _EMPTY_SHA256:
            raise ValueError(
                "the name 'anonymous' owns what is stored without keys, choose another one"
                if name == _ANONYMOUS
                else "an entry has the sum of an empty key: the variable with the key was not set when it was made"
            )
        if not is_key_name(name) or len(digest) != _SHA256_HEX_CHARS or not set(digest) <= set("0123456789abcdef"):
            # Never echo the value: people paste the key itself here by mistake.
            raise ValueError(
                "each entry is name:sha256 with 64 hexadecimal digits (printf %s 'the-key' | sha256sum), "
                "names of letters, digits, '-' and '_'"
            )
        keys.append((name, digest))
    if len({name for name, _ in keys}) != len(keys):
        raise ValueError("two keys have the same name")
    return tuple(keys)


def _sink(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"postgresql", "postgres"} and bool(parts.netloc)
    except ValueError:
        usable = False
    if not usable or _SINK_NAME.fullmatch(name) is None:
        # Never echo the value: it may hold a password.
        raise ValueError(
            "each entry is name=postgresql://user:password@host:port/database, names of at most 48 letters, digits, "
            "'-' and '_'; / ? # [ ] @ : , in a password are written as %2F and so on"
        )
    return name, url
