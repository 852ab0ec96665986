"""What a URL of a Redis says. The one place that reads it: for redis-py, for kombu and for people.

| form | Redis |
|---|---|
| `redis://[user:password@]host[:port][/db]` | one server |
| `rediss://…` | the same over TLS |
| `unix://[user:password@]path[?db=1]` | one server on this machine |
| `redis+sentinel://[user:password@]host[:port][,host[:port]]…/service[/db]` | the master that these Sentinels name |

The last form has parameters: `sentinel_username` and `sentinel_password` of the Sentinels, `ssl=true` for TLS to the
servers and the Sentinels, and `sentinel_ssl=false` for Sentinels without TLS. With TLS there are those of `TLS`.

redis-py takes many more and kombu takes hardly one, so bells would fail where the ledger works. All others are refused.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

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
        from redis.backoff import NoBackoff  # noqa: PLC0415 - where kombu is, redis-py is; a command line needs neither
        from redis.retry import Retry  # noqa: PLC0415

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
