"""Where the Redis is, for redis-py and for kombu, and why one does not serve. The one place that knows either.

Two settings more than the URL say that Sentinels name the master. redis-py takes many parameters in a URL and kombu
hardly one, so bells would fail where the ledger works: those of TLS are taken, all others refused.

`explain` makes a sentence of an exception. All of its words are from here: no password, no host, no text of a caller.
"""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from redis import exceptions as replies
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

RedisAck = Literal["local", "replica"]
"""What `EMBEDQ_REDIS_ACK` may be."""

OLDEST_VERSION = (6, 2)
"""Of Redis and of Valkey."""
SENTINEL_PORT = 26379
SENTINEL_TIMEOUT_S = 0.5
"""For one Sentinel to be reached, and for its answer. Those that are left are asked within a caller's second."""
TLS = frozenset(
    {
        *("ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname"),
        *("ssl_ciphers", "ssl_keyfile", "ssl_password"),
    }
)
"""Parameters with which redis-py and kombu do the same."""

# A login has a colon: without one it would be the name of a user, and names are shown.
_LOGIN = r"([^/?#@:]*:[^/?#@]*@)?"
_URL = re.compile(rf"rediss?://{_LOGIN}[^/?#@]*(/\d{{0,5}})?(\?[^#]*)?|unix://{_LOGIN}/[^?#@]*(\?db=\d{{1,5}})?")
_FORM = (
    "must be redis://[user:password@]host[:port][/database], rediss://… (with parameters of TLS alone, ssl_…, each "
    "once), or unix://[user:password@]/path[?db=number]. A password without a user stands behind a colon, as in "
    "redis://:password@host; / ? # [ ] @ : in it are written as %2F and so on"
)


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Who names the master. `service`: what they call it. `urls`: one for each, as `redis.from_url` takes it."""

    service: str
    urls: tuple[str, ...] = field(repr=False)


def require_redis_url(url: str) -> str:
    """The URL of a server, or `ValueError`, which repeats nothing of it, because it may hold a password."""
    try:
        _parsed(url)
    except ValueError:
        raise ValueError(_FORM) from None
    names = [name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)]
    taken = {"rediss": TLS, "unix": frozenset({"db"})}.get(urlsplit(url).scheme, frozenset())
    if not _URL.fullmatch(url) or not taken >= {*names} or len({*names}) < len(names):
        raise ValueError(_FORM)
    if _options(url).get("ssl_cert_reqs", "none") not in {"none", "optional", "required"}:
        raise ValueError("must have ssl_cert_reqs=required, optional or none")
    return url


def sentinel_url(text: str) -> str:
    """The URL of `host[:port]`, or of what is one already. Raises as `require_redis_url`."""
    url = require_redis_url(text if "://" in text else f"redis://{text}")
    parts = urlsplit(url)
    if not parts.hostname or parts.path:
        raise ValueError(
            "each is host, host:port, or redis://user:password@host:port, with rediss:// for TLS, without a database"
        )
    return url if parts.port else parts._replace(netloc=f"{parts.netloc.removesuffix(':')}:{SENTINEL_PORT}").geturl()


def address_of(url: str) -> str:
    """For people: without what stands before a host, and without a query, which may hold a password too."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{_host(url)}{parts.path}"


def broker_options(url: str, sentinels: Sentinels | None) -> dict[str, Any]:
    """The same Redis in options of Celery: kombu has forms of its own for a unix socket and for Sentinels.

    kombu's own default trusts any certificate: whoever stands in between would get the password. Hence each form of TLS
    says `ssl_cert_reqs`.
    """
    parts, options = urlsplit(url), _options(url)
    if sentinels is None:
        if parts.scheme == "unix":
            url = f"redis+socket://{parts.netloc}{parts.path}?virtual_host={options.get('db', 0)}"
        elif parts.scheme == "rediss" and "ssl_cert_reqs" not in options:
            url += f"{'&' if parts.query else '?'}ssl_cert_reqs=required"
        return {"broker_url": url}
    login, at, _ = parts.netloc.rpartition("@")
    first = _parsed(sentinels.urls[0])
    asking: dict[str, Any] = {name: first[name] for name in ("username", "password") if name in first}
    if urlsplit(sentinels.urls[0]).scheme == "rediss":
        asking |= {"ssl": True, **_tls(sentinels.urls[0])}
    asking |= {
        "socket_timeout": SENTINEL_TIMEOUT_S,
        "socket_connect_timeout": SENTINEL_TIMEOUT_S,
        # The default repeats with pauses: a bell took 14 s where two of three Sentinels were down.
        "retry": Retry(NoBackoff(), 1),
    }
    return {
        # Each has the login of the servers: kombu takes that of the one whose turn it is.
        "broker_url": ";".join(f"sentinel://{login}{at}{_host(one)}{parts.path}" for one in sentinels.urls),
        "broker_transport_options": {"master_name": sentinels.service, "sentinel_kwargs": asking},
        "broker_use_ssl": _tls(url) if parts.scheme == "rediss" else None,
    }


def _parsed(url: str) -> dict[str, Any]:
    parsed: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return parsed


def _options(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _tls(url: str) -> dict[str, Any]:
    """Parameters of TLS as redis-py takes them beside a host: with types, where a URL has text alone."""
    given = {name: value for name, value in _parsed(url).items() if name in TLS}
    return {"ssl_cert_reqs": "required", **given}  # kombu takes an empty mapping for "no TLS"


# Why a Redis does not serve.

_CODES: dict[type[RedisError], str] = {
    replies.AskError: "CLUSTER",
    replies.AuthenticationError: "WRONGPASS",
    replies.BusyLoadingError: "LOADING",
    replies.ClusterCrossSlotError: "CLUSTER",
    replies.ClusterDownError: "CLUSTER",
    replies.MasterDownError: "MASTERDOWN",
    replies.MovedError: "CLUSTER",
    replies.NoPermissionError: "NOPERM",
    replies.OutOfMemoryError: "OOM",
    replies.ReadOnlyError: "READONLY",
}
"""redis-py takes the code off an error for which it has a class."""

# At the start of an error, and behind a "-" where Redis 6.2 quotes it inside the error of a script.
_CODE = re.compile(
    r"(^|-)(LOADING|BUSY|MISCONF|READONLY|MASTERDOWN|NOREPLICAS|UNBLOCKED|NOAUTH|NOPERM|WRONGPASS|DENIED|OOM)\b"
)

_WITHOUT_CODE = {
    "WAIT cannot be used with replica instances": "READONLY",
    # A right that a script lacks: Redis 6.2 and 7.0, then Redis 7.2 and Valkey.
    "The user executing the script can't": "NOPERM",
    "ACL failure in script": "NOPERM",
    "Authentication required": "NOAUTH",
    "HELLO must be called with the client already authenticated": "NOAUTH",
    "max number of clients": "MAXCLIENTS",
    "DB index is out of range": "DATABASE",
    "invalid DB index": "DATABASE",
    "unknown command": "COMMAND",
    "Unknown Redis command": "COMMAND",
    "in a cluster node": "CLUSTER",
    "while the cluster is down": "CLUSTER",
    "in cluster mode": "CLUSTER",
    "hash to the same slot": "CLUSTER",
}
"""Text of an error that has no code of its own, or the one of another -> the code of the refusal."""

_REFUSALS = {
    "BUSY": "is busy with a script of somebody's (BUSY); `SCRIPT KILL` ends it",
    "CLUSTER": "is in cluster mode, where no script may use all keys; EMBEDQ_REDIS_URL must lead to one without it "
    "(cluster-enabled no)",
    "COMMAND": "does not know the command{command}; remove its rename-command from the settings of Redis, or use "
    "another one, Redis or Valkey 6.2 or newer",
    "DATABASE": "has no database of this number; the one that ends EMBEDQ_REDIS_URL must be below its `databases`",
    "DENIED": "is in protected mode (DENIED); give its users passwords, or bind it to a network of its own",
    "LOADING": "is loading its data (LOADING)",
    "MASTERDOWN": "is a replica that has lost its master (MASTERDOWN); EMBEDQ_REDIS_URL must lead to a master",
    "MAXCLIENTS": "has no connection left; raise its maxclients, or take a plan with more connections",
    "MISCONF": "cannot write to its disk (MISCONF); its log says why, look for room there",
    "NOAUTH": "wants a password (NOAUTH); write it as redis://user:password@host:6379/0 in EMBEDQ_REDIS_URL",
    "NOPERM": "refuses its user {right} (NOPERM); `ACL SETUSER` grants it, and `ACL LOG` has the details",
    "NOREPLICAS": "has fewer replicas than its min-replicas-to-write (NOREPLICAS)",
    "OOM": "has no memory left (OOM); raise its maxmemory",
    "READONLY": "is a replica, which takes no writes (READONLY); EMBEDQ_REDIS_URL must lead to the master",
    "UNBLOCKED": "has become a replica (UNBLOCKED); EMBEDQ_REDIS_URL must lead to the master",
    "WRONGPASS": "refuses the password or the user (WRONGPASS); compare the login in EMBEDQ_REDIS_URL with Redis",
}
"""Code -> what such a Redis does, and the fix."""

FOR_GOOD = frozenset({"CLUSTER", "COMMAND", "DATABASE"})
"""Codes that no wait mends: another server, or other settings of it, are needed."""

_MOST_CAUSES = 10
# The names of commands are Redis's, or our own.
_COMMAND = re.compile(r"(?:unknown command |run the )['`]([A-Za-z|]{1,32})['`]")

_CLOSED = (
    "closed the connection; if it does so again, it may want TLS (rediss:// in EMBEDQ_REDIS_URL), or the certificate "
    "of a client (ssl_certfile)"
)
_WANTS_CERTIFICATE = (
    "wants the certificate of a client; name it with ssl_certfile and ssl_keyfile in EMBEDQ_REDIS_URL, or set "
    "tls-auth-clients no"
)
_PLAIN = "does not speak TLS there; EMBEDQ_REDIS_URL must begin with redis:// or have the port for TLS"

_FAILURES: tuple[tuple[type[BaseException], str, str], ...] = (
    (
        ssl.SSLCertVerificationError,
        "mismatch",
        "has the certificate of another host; that of EMBEDQ_REDIS_URL must be in it",
    ),
    (ssl.SSLCertVerificationError, "expired", "has a certificate that has expired; give it a new one"),
    (ssl.SSLCertVerificationError, "not yet valid", "has a certificate that is not valid yet; compare the clocks"),
    (
        ssl.SSLCertVerificationError,
        "",
        "has a certificate that is not trusted; name its authority with ssl_ca_certs in EMBEDQ_REDIS_URL",
    ),
    (Exception, "CERTIFICATE_REQUIRED", _WANTS_CERTIFICATE),
    (Exception, "SSLV3_ALERT_HANDSHAKE_FAILURE", _WANTS_CERTIFICATE),
    (ssl.SSLEOFError, "", _CLOSED),
    (ssl.SSLError, "WRONG_VERSION_NUMBER", _PLAIN),
    (ssl.SSLError, "RECORD_LAYER_FAILURE", _PLAIN),
    (ssl.SSLError, "", "cannot be reached by TLS; look at the files that EMBEDQ_REDIS_URL names for it (ssl_…)"),
    (TimeoutError, "handshake", _PLAIN),
    (socket.gaierror, "", "cannot be found; no address is known for the host in EMBEDQ_REDIS_URL (DNS)"),
    (ConnectionRefusedError, "", "refuses connections; nothing listens where EMBEDQ_REDIS_URL leads"),
    (ConnectionError, "", _CLOSED),
    (RedisConnectionError, "closed by server", _CLOSED),
    (FileNotFoundError, "", "cannot be reached; a file that EMBEDQ_REDIS_URL names is not there (a socket, or ssl_…)"),
    (
        PermissionError,
        "",
        "cannot be reached; this user may not open a file that EMBEDQ_REDIS_URL names (a socket, or ssl_…)",
    ),
    (
        RedisConnectionError,
        "No master found",
        "cannot be found; no Sentinel in EMBEDQ_REDIS_SENTINELS names a master of EMBEDQ_REDIS_SERVICE that is up",
    ),
    (InvalidResponse, "", "is not what answers at the host and port of EMBEDQ_REDIS_URL"),
    (
        RedisTimeoutError,
        "connecting",
        "does not answer at the host and port of EMBEDQ_REDIS_URL; a firewall, or a port without TLS",
    ),
    (RedisTimeoutError, "", "does not answer in time"),
    (OSError, "", "cannot be reached; look at the host and the port in EMBEDQ_REDIS_URL, and at the network"),
    (RedisConnectionError, "", "does not answer"),
)
"""Kind of an error, a part of its text -> what such a Redis does, and the fix. The first one that fits is said."""


def refusal(error: BaseException) -> str | None:
    """The code with which Redis refuses to serve; None when the error says something else."""
    if not isinstance(error, RedisError):
        return None
    text = str(error)
    for part, code in _WITHOUT_CODE.items():
        if part in text:
            return code
    if type(error) in _CODES:
        return _CODES[type(error)]
    match = _CODE.search(text) if isinstance(error, ResponseError) else _CODE.match(text)
    return match[2] if match else None


def explain(error: BaseException) -> str:
    """One sentence on why a Redis, or a file of this process, cannot be used; "" where the error is neither's.

    It names the setting and the fix where there is one, and is safe for callers: all of its words are from here, or the
    name of a command, or the folder of a file that this process uses.
    """
    if isinstance(error, OSError) and error.errno and isinstance(error.filename, str):
        return f"the folder {Path(error.filename).parent} cannot be used: {os.strerror(error.errno)}"
    errors = list(_chain(error))
    if not any(isinstance(one, RedisError) for one in errors):
        return ""
    for one in errors:
        code = refusal(one)
        if code is not None:
            return f"Redis {_REFUSALS[code].format(**_of_reply(str(one)))}"
    fitting = (said for kind, part, said in _FAILURES for one in errors if isinstance(one, kind) and part in str(one))
    sentence = next(fitting, "")
    return sentence and f"Redis {sentence}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_MOST_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _of_reply(text: str) -> dict[str, str]:
    command = _COMMAND.search(text)
    named = f" {command[1].upper()}" if command else ""
    if "channel" in text:
        return {"command": named, "right": "the channels of embedq, &eq:*"}
    if not named and "key" in text:
        return {"command": named, "right": "a key of embedq, ~eq:* or ~embedq.bell.*"}
    return {"command": named, "right": f"the command{named}" if named else "what a script calls"}
