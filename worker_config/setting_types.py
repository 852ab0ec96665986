"""Types of the values of settings. A validator takes what the environment says and raises `ValueError`."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from worker_config.redis_connection import sentinel_url

_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""Of an API key, or of a sink."""
_ANONYMOUS = "anonymous"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_SERVED_NAME = re.compile(r"[\w./:@+-]{1,200}")
_HUB = re.compile(r"(https?://)?[\w-]+(\.[\w-]+)+/(?=[^/]+/[^/]+$)")
"""In front of the id of a model: the address of a hub."""
_HOST = re.compile(r"\*|[a-z0-9._-]{1,253}")
_ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
_BETWEEN_SINKS = re.compile(r",(?=[^,=/@]*=)")
_SAME_SCHEME = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az"}
"""Other names that a root of ingestion may have for the place of a storage."""
_PORT_OF_PLATFORM = ("tcp://", "udp://")

PORT = 8000


class KeyOfSettings(NamedTuple):
    """A key of `EMBEDQ_API_KEYS`: `sha256` is of its text. `admin`: it may manage the others."""

    name: str
    sha256: str
    admin: bool


def is_key_name(name: str) -> bool:
    """Whether an API key may have this name: ASCII letters and digits, '-' and '_'."""
    return _NAME.fullmatch(name) is not None and name != _ANONYMOUS


def require_queue_name(name: str) -> None:
    """Raises `ValueError` unless a model may be served under this name.

    Keys in Redis have it between colons; queues of no model begin with @.
    """
    if name.startswith("@"):
        raise ValueError("must not begin with @")
    if ":" in name:
        raise ValueError("must not hold a colon; use - or _ in its place")


def shows(root: str, place: str) -> bool:
    """Whether what is below a root of ingestion holds some of a place: a folder, or the URL of a bucket.

    Names that begin with a dot are not shown.
    """
    scheme, _, path = root.partition("://") if "://" in root else ("file", "", root)
    other, _, other_path = place.partition("://") if "://" in place else ("file", "", place)
    if _SAME_SCHEME.get(scheme, scheme) != other:
        return False
    if scheme == "file":
        above, below = Path(unquote(path)).resolve(), Path(unquote(other_path)).expanduser().resolve()
    else:
        above, below = Path("/", path), Path("/", other_path)
    inside = below.is_relative_to(above) and not any(part.startswith(".") for part in below.relative_to(above).parts)
    return inside or above.is_relative_to(below)


def _listed(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _require_unlike(names: Iterable[str], what: str) -> None:
    names = list(names)
    if len(set(names)) < len(names):
        raise ValueError(f"names {what} twice")


def _place(schemes: set[str], said: str) -> AfterValidator:
    def check(value: str) -> str:
        scheme, separator, _ = value.partition("://")
        if separator and scheme not in schemes:
            raise ValueError(said)
        return value

    return AfterValidator(check)


def _names(pattern: re.Pattern[str], said: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        names = tuple(part.lower() for part in _listed(value))
        if not all(map(pattern.fullmatch, names)):
            raise ValueError(said)
        return names

    return BeforeValidator(check)


def _roots(value: Any) -> Any:
    paths = _listed(value)
    for root in paths:
        if not root.startswith("/") and "://" not in root:  # the roles may run in different folders
            raise ValueError(f"{root!r:.80} must be an absolute path, or a URL such as s3://bucket/prefix")
    return paths


def _sinks(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # A URL may hold commas itself, between hosts.
    pairs = tuple(_sink(part.strip(" ,")) for part in _BETWEEN_SINKS.split(value) if part.strip(" ,"))
    _require_unlike((name for name, _ in pairs), "a sink")
    return pairs


def _sink(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"postgresql", "postgres"} and bool(parts.netloc)
    except ValueError:
        usable = False
    if not usable or _NAME.fullmatch(name) is None:
        # Never echo the value: it may hold a password.
        raise ValueError(
            "each entry is name=postgresql://user:password@host:port/database, names of at most 48 letters, digits, "
            "'-' and '_'; / ? # [ ] @ : , in a password are written as %2F and so on"
        )
    return name, url


def _model(name: str) -> str:
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


def _served_names(value: Any) -> Any:
    names = _listed(value)
    for name in names:
        if not _SERVED_NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} must have 1 to 200 letters, digits and _ . / : @ + -")
        if name.startswith("@"):
            raise ValueError("must not begin with @")
    _require_unlike(names, "a model")
    return names


def _port(value: Any) -> Any:
    # Kubernetes and Docker's links set EMBEDQ_PORT=tcp://10.0.0.1:8000 where another Service is called embedq.
    return PORT if isinstance(value, str) and value.startswith(_PORT_OF_PLATFORM) else value


def _api_keys(value: Any) -> Any:
    keys = tuple(_api_key(part) if isinstance(part, str) else part for part in _listed(value))
    _require_unlike((name for name, *_ in keys), "a key")
    return keys


def _api_key(text: str) -> KeyOfSettings:
    name, _, rest = text.partition(":")
    digest, colon, role = rest.partition(":")
    digest = digest.lower()
    if name == _ANONYMOUS:
        raise ValueError("the name 'anonymous' owns what is stored without keys, choose another one")
    if digest == _EMPTY_SHA256:
        raise ValueError("an entry has the sum of an empty key: the variable with the key was not set when it was made")
    if not is_key_name(name) or not _SHA256.fullmatch(digest) or role != ("admin" if colon else ""):
        # Never echo the value: people paste the key itself here by mistake.
        raise ValueError(
            "each entry is name:sha256 or name:sha256:admin with 64 hexadecimal digits "
            "(printf %s 'the-key' | sha256sum), names of letters, digits, '-' and '_'"
        )
    return KeyOfSettings(name, digest, admin=bool(role))


SentinelUrls: TypeAlias = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(lambda value: tuple(map(sentinel_url, _listed(value))))
]
StorageUrl: TypeAlias = Annotated[
    str, _place({"file", "s3", "gs", "az", "memory"}, "must be a folder, or start with file://, s3://, gs:// or az://")
]
Datasets: TypeAlias = Annotated[
    str,
    _place({"file", "postgresql", "postgres"}, "must be a folder on a local disk, or start with postgresql://"),
]
Roots: TypeAlias = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_roots)]
Sinks: TypeAlias = Annotated[tuple[tuple[str, str], ...], NoDecode, BeforeValidator(_sinks)]
ModelName: TypeAlias = Annotated[str, AfterValidator(_model)]
ServedNames: TypeAlias = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_served_names)]
Port: TypeAlias = Annotated[int, BeforeValidator(_port)]
ApiKeys: TypeAlias = Annotated[tuple[KeyOfSettings, ...], NoDecode, BeforeValidator(_api_keys)]
Hosts: TypeAlias = Annotated[
    tuple[str, ...],
    NoDecode,
    _names(_HOST, "each is *, or a name such as embed.example.org, without a scheme, a port or a path"),
]
Origins: TypeAlias = Annotated[
    tuple[str, ...],
    NoDecode,
    _names(_ORIGIN, "each is *, or an origin such as https://app.example.org:8443, without a path or a last /"),
]
