"""What a URL of a Redis says, and why that Redis does not serve. The one place that reads either.

| form | Redis |
|---|---|
| `redis://[user:password@]host[:port][/db]` | one server |
| `rediss://…` | the same over TLS |
| `unix://[user:password@]path[?db=1]` | one server on this machine |
| `redis+sentinel://[user:password@]host[:port][,host[:port]]…/service[/db]` | the master that these Sentinels name |

The last form has parameters: `sentinel_username` and `sentinel_password` of the Sentinels, `ssl=true` for TLS to the
servers and the Sentinels, and `sentinel_ssl=false` for Sentinels without TLS. With TLS there are those of `TLS`.

redis-py takes many more and kombu takes hardly one, so bells would fail where the ledger works. All others are refused.

`explain` makes a sentence of an exception. All of its words are from here: no password, no host, no text of a caller.
"""

import os
import re
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

from redis import exceptions as replies
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

RedisAck = Literal["local", "replica"]
"""What `EMBEDQ_REDIS_ACK` may be."""

OLDEST_VERSION = (6, 2)
"""Of Redis and of Valkey."""
SENTINEL = "redis+sentinel"
SENTINEL_PORT = 26379
SENTINEL_TIMEOUT_S = 0.5
"""For one Sentinel to be reached, and for its answer. Those that are left are asked within a caller's second."""

_UNREADABLE = (
    "cannot be read: the port must be 0 to 65535, an IPv6 address stands in [], "
    "and / ? # [ ] @ : in a password are written as %2F and so on"
)
_SENTINEL_FORM = "must be redis+sentinel://host:port,host:port/service/0: the hosts are Sentinels, service is a name"
_DATABASE_FORM = "must end with the number of a database, as in redis://host:6379/0"
_CREDENTIALS = "must have the user and the password before the host, as in redis://user:password@host:6379/0"
_NO_COLON = (
    "must have a colon before the password, as in redis://:password@host:6379/0: without one it is the name of a user, "
    "and names are shown. A user without a password is written as redis://user:@host:6379/0"
)
TLS = frozenset(
    {
        *("ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname"),
        *("ssl_ciphers", "ssl_keyfile", "ssl_password"),
    }
)
"""Parameters with which redis-py and kombu do the same."""
_SERVICE = re.compile(r"[A-Za-z0-9._-]{1,100}")
_DATABASE = re.compile(r"\d{0,5}")


@dataclass(frozen=True, slots=True)
class Broker:
    """A Redis as kombu wants it.

    Attributes:
        url: of one server, or of all Sentinels.
        transport_options: beside those that do not depend on the URL.
        use_ssl: for `broker_use_ssl`; None: no TLS, or the URL itself says so.
    """

    url: str = field(repr=False)
    transport_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    use_ssl: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """One Redis, or the Sentinels that know which one is the master.

    Attributes:
        url: for `redis.Redis.from_url`; of a service it has no host, because the Sentinels name that.
        service: what the Sentinels call the master and its replicas; "" for one server.
        sentinels: one URL each, for `redis.Redis.from_url`.
    """

    url: str = field(repr=False)
    service: str = ""
    sentinels: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str) -> "RedisUrl":
        """Reads a value of `EMBEDQ_REDIS_URL`.

        Raises:
            ValueError: it cannot be read. The message repeats nothing of it, because it may hold a password.
        """
        scheme, _, rest = text.partition("://")
        if scheme == SENTINEL:
            return _of_sentinels(rest)
        try:
            parts, _ = urlsplit(text), urlsplit(text).port
        except ValueError:
            raise ValueError(_UNREADABLE) from None
        if parts.scheme not in {"redis", "rediss", "unix"}:
            raise ValueError(f"must start with redis://, rediss://, unix:// or {SENTINEL}://")
        if "#" in text:
            raise ValueError(_UNREADABLE)
        _require_password(parts.netloc)
        options = _options(parts.query, {"db"} if parts.scheme == "unix" else TLS)
        if parts.scheme == "redis" and options:
            raise ValueError(f"must start with rediss://, because {min(options)} is of TLS")
        database = options.get("db", "") if parts.scheme == "unix" else parts.path.removeprefix("/")
        if not _DATABASE.fullmatch(database):
            raise ValueError(_DATABASE_FORM)
        return cls(text)

    @property
    def address(self) -> str:
        """For people: without what stands before a host, and without a query, which may hold a password too."""
        if not self.service:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        hosts = ",".join(_host(url) for url in self.sentinels)
        return f"{SENTINEL}://{hosts}/{self.service}{urlsplit(self.url).path}"

    def broker(self) -> Broker:
        """The same Redis for kombu, which has forms of its own for a unix socket and for Sentinels."""
        if self.service:
            return self._broker_of_sentinels()
        parts = urlsplit(self.url)
        if parts.scheme == "rediss" and "ssl_cert_reqs" not in parse_qs(parts.query):
            # kombu's own default trusts any certificate: whoever stands in between would get the password.
            return Broker(f"{self.url}{'&' if parts.query else '?'}ssl_cert_reqs=required")
        if parts.scheme != "unix":
            return Broker(self.url)
        database = parse_qs(parts.query).get("db", ["0"])[0]
        return Broker(f"redis+socket://{parts.netloc}{parts.path}?virtual_host={database}")

    def _broker_of_sentinels(self) -> Broker:
        parts = urlsplit(self.url)
        login, at, _ = parts.netloc.rpartition("@")
        # Each has the login: kombu takes that of the one whose turn it is.
        urls = (f"sentinel://{login}{at}{_host(url)}{parts.path}" for url in self.sentinels)
        first = urlsplit(self.sentinels[0])
        asking: dict[str, Any] = {
            "socket_timeout": SENTINEL_TIMEOUT_S,
            "socket_connect_timeout": SENTINEL_TIMEOUT_S,
            # The default repeats with pauses: a bell took 14 s where two of three Sentinels were down.
            "retry": Retry(NoBackoff(), 1),
        }
        if first.username:
            asking["username"] = unquote(first.username)
        if first.password:
            asking["password"] = unquote(first.password)
        if first.scheme == "rediss":
            asking |= {"ssl": True, **_tls(first.query)}
        options = {"master_name": self.service, "sentinel_kwargs": asking}
        return Broker(";".join(urls), options, _tls(parts.query) if parts.scheme == "rediss" else None)


def _of_sentinels(rest: str) -> RedisUrl:
    # Not by urlsplit: it knows one host, and takes several for a port that cannot be read.
    place, _, query = rest.partition("?")
    netloc, _, path = place.partition("/")
    login, at, hosts = netloc.rpartition("@")
    service, _, database = path.partition("/")
    if "#" in rest or login.count(":") > 1 or not _SERVICE.fullmatch(service) or not _DATABASE.fullmatch(database):
        raise ValueError(_SENTINEL_FORM)
    _require_password(login + at)
    own = {"sentinel_username", "sentinel_password", "ssl", "sentinel_ssl"}
    options = _options(query, TLS | own)
    user, password = options.pop("sentinel_username", ""), options.pop("sentinel_password", "")
    tls = _flag("ssl", options.pop("ssl", ""), default=False)
    sentinel_tls = _flag("sentinel_ssl", options.pop("sentinel_ssl", ""), default=tls)
    if options and not tls:
        raise ValueError(f"must have ssl=true, because {min(options)} is of TLS")
    head = f"{_scheme(tls=sentinel_tls)}://" + (f"{quote(user, '')}:{quote(password, '')}@" if user or password else "")
    tail = _query(options) if sentinel_tls else ""
    return RedisUrl(
        url=f"{_scheme(tls=tls)}://{login}{at}/{database or 0}{_query(options)}",
        service=service,
        sentinels=tuple(head + _checked(host) + tail for host in hosts.split(",")),
    )


def _checked(host: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_UNREADABLE) from None
    if not name or "%" in name or port == 0:
        raise ValueError(_SENTINEL_FORM)
    return host if port else f"{host.removesuffix(':')}:{SENTINEL_PORT}"


def _require_password(netloc: str) -> None:
    login, at, _ = netloc.rpartition("@")
    if at and ":" not in login:
        raise ValueError(_NO_COLON)


def _options(query: str, known: Collection[str]) -> dict[str, str]:
    """The parameters by name. One that is unknown is not repeated: it may be the rest of a password with a "?"."""
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if options.keys() & {"username", "password"}:
        raise ValueError(_CREDENTIALS)
    unknown = options.keys() - set(known)
    if "db" in unknown:
        raise ValueError(_DATABASE_FORM)
    if unknown or len(options) < len(pairs):
        raise ValueError(f"must have no parameters but {', '.join(sorted(known))}, each once")
    if options.get("ssl_cert_reqs", "none") not in {"none", "optional", "required"}:
        raise ValueError("must have ssl_cert_reqs=required, optional or none")
    _flag("ssl_check_hostname", options.get("ssl_check_hostname", ""), default=True)
    return options


def _flag(name: str, value: str, *, default: bool) -> bool:
    if value.lower() not in {"", "true", "false"}:
        raise ValueError(f"must have {name}=true or {name}=false")
    return value.lower() == "true" if value else default


def _scheme(*, tls: bool) -> str:
    return "rediss" if tls else "redis"


def _query(options: Mapping[str, str]) -> str:
    return f"?{urlencode(options)}" if options else ""


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _tls(query: str) -> dict[str, Any]:
    """Parameters of TLS as redis-py takes them beside a host: with types, where a URL has text alone."""
    options: dict[str, Any] = {"ssl_cert_reqs": "required"}  # kombu takes an empty mapping for "no TLS"
    options |= {name: value for name, value in parse_qsl(query) if name.startswith("ssl_")}
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = _flag("ssl_check_hostname", options["ssl_check_hostname"], default=True)
    return options


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
        "cannot be found; no Sentinel in EMBEDQ_REDIS_URL names a master of the service that is up",
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
