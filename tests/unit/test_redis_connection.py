"""What the forms of `EMBEDQ_REDIS_URL` mean, for redis-py, for kombu and for people, and why a Redis does not serve."""

import errno
import socket
import ssl
from typing import Any

import pytest
import redis
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, MovedError, NoPermissionError, ResponseError
from redis.retry import Retry

from worker_config.redis_connection import RedisUrl, explain

SERVICE = "redis+sentinel://me:p%2Fw@a:1,b,[::1]:3/ledger/2?sentinel_password=s%40t&ssl=true&ssl_ca_certs=/ca.pem"


def test_sentinels_and_their_service() -> None:
    parsed = RedisUrl.parse(SERVICE)
    assert parsed.service == "ledger"
    assert parsed.url == "rediss://me:p%2Fw@/2?ssl_ca_certs=%2Fca.pem"
    assert parsed.sentinels == (
        "rediss://:s%40t@a:1?ssl_ca_certs=%2Fca.pem",
        "rediss://:s%40t@b:26379?ssl_ca_certs=%2Fca.pem",
        "rediss://:s%40t@[::1]:3?ssl_ca_certs=%2Fca.pem",
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rediss://me:secret@h:1/0?ssl_password=secret", "rediss://h:1/0"),
        (SERVICE, "redis+sentinel://a:1,b:26379,[::1]:3/ledger/2"),
    ],
)
def test_people_see_no_password(url: str, shown: str) -> None:
    parsed = RedisUrl.parse(url)
    assert parsed.address == shown
    assert "p%2Fw" not in repr(parsed)
    assert "secret" not in repr(parsed)


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:secret@a:1",
        "redis+sentinel://:secret@a:1/",
        "redis+sentinel://:secret@a:1/led ger",
        "redis+sentinel://:secret@a:1/ledger/x",
        "redis+sentinel://:secret@a:1,/ledger",
        "redis+sentinel://:secret@/ledger",
        "redis+sentinel://:sec:ret@a/ledger",
        "redis+sentinel://:secret@a:0/ledger",
        "redis+sentinel://:secret@a:99999/ledger",
        "redis+sentinel://:secret@[::1/ledger",
        "redis+sentinel://:sec#ret@a/ledger",
        "redis+sentinel://:secret@a/ledger?ssl=perhaps",
        "redis+sentinel://:secret@a/ledger?ssl_ca_certs=/ca.pem",
        "redis+sentinel://:secret@a/ledger?socket_timeout=5",
        "redis+sentinel://a/ledger?password=secret",
        "redis+sentinel://secret@a/ledger",
        "redis://secret@a:6379/0",
        "rediss://secret@a",
        "unix://secret@/run/r.sock",
        "redis://a?password=secret",
        "redis://a?username=secret",
        "redis://a?db=2&x=secret",
        "redis://a?ssl_ca_certs=/secret",
        "redis://a/secret",
        "redis://u:1?secret@a:6379/0",
        "redis://u:1/secret@a:6379/0",
        "redis://u:1#secret@a:6379/0",
        "rediss://a?ssl_cert_reqs=secret",
        "rediss://a?ssl_cert_reqs=required&ssl_cert_reqs=none",
        "rediss://a?ssl_check_hostname=secret",
        "rediss://a?ssl_min_version=771",
        "unix:///run/r.sock?db=secret",
        "unix:///run/r.sock?db=1&password=secret",
        "redis+sentinel:secret",
        "sentinel://:secret@a/ledger",
    ],
)
def test_what_cannot_be_read_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(must|cannot) ") as raised:
        RedisUrl.parse(url)
    assert "sec" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("redis://secret@a:6379/0", "redis://:password@host:6379/0"),
        ("redis+sentinel://secret@a/ledger", "a colon before the password"),
        ("redis://a?password=secret", "redis://user:password@host:6379/0"),
        ("redis+sentinel://a/ledger?password=secret", "before the host"),
        ("unix:///run/r.sock?password=secret", "before the host"),
        ("redis://a?db=2", "redis://host:6379/0"),
        ("redis://a?socket_timeout=60", "no parameters but ssl_ca_certs"),
        ("rediss://a?ssl_min_version=771", "no parameters but ssl_ca_certs"),
        ("unix:///run/r.sock?socket_timeout=60", "no parameters but db"),
        ("redis://a?ssl_ca_certs=/ca.pem", "rediss://, because ssl_ca_certs"),
        ("redis+sentinel://a/ledger?ssl_ca_certs=/ca.pem", "ssl=true, because ssl_ca_certs"),
    ],
)
def test_what_kombu_would_not_take_is_refused_with_the_fix(url: str, fix: str) -> None:
    with pytest.raises(ValueError, match="must") as raised:
        RedisUrl.parse(url)
    assert fix in str(raised.value)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://h:1/2", "redis://h:1/2"),
        ("rediss://h:1/2?ssl_cert_reqs=none", "rediss://h:1/2?ssl_cert_reqs=none"),
        ("rediss://h:1/2", "rediss://h:1/2?ssl_cert_reqs=required"),
        ("rediss://h:1/2?ssl_ca_certs=/a", "rediss://h:1/2?ssl_ca_certs=/a&ssl_cert_reqs=required"),
        ("unix://:secret@/run/r.sock?db=1", "redis+socket://:secret@/run/r.sock?virtual_host=1"),
        ("unix://me:p%2Fw@/run/r.sock", "redis+socket://me:p%2Fw@/run/r.sock?virtual_host=0"),
        (SERVICE, "sentinel://me:p%2Fw@a:1/2;sentinel://me:p%2Fw@b:26379/2;sentinel://me:p%2Fw@[::1]:3/2"),
    ],
)
def test_kombu_has_forms_of_its_own(url: str, broker: str) -> None:
    assert RedisUrl.parse(url).broker().url == broker


def test_what_kombu_must_be_told_of_sentinels() -> None:
    broker = RedisUrl.parse(SERVICE + "&ssl_check_hostname=false").broker()
    tls: dict[str, Any] = {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}
    times = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5, "retry": Retry(NoBackoff(), 1)}
    assert broker.use_ssl == tls
    assert broker.transport_options == {
        "master_name": "ledger",
        "sentinel_kwargs": {**times, "password": "s@t", "ssl": True, **tls},
    }


def caused(error: BaseException, *causes: BaseException) -> BaseException:
    """The error as it is raised by one who caught the next, and so on."""
    first = error
    for cause in causes:
        error.__context__ = error = cause
    return first


HOST = "connecting to me:secret@host:6379"
IN_SCRIPT = "Error running script (call to f_0): @user_script:226: @user_script: 226: "


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ResponseError("LOADING secret"), "is loading its data (LOADING)"),
        (ResponseError(IN_SCRIPT + "-MISCONF Errors writing to the AOF file: secret"), "cannot write to its disk"),
        (ResponseError("DENIED secret"), "protected mode"),
        (ResponseError("OOM command not allowed"), "raise its maxmemory"),
        (AuthenticationError("invalid username-password pair: secret"), "refuses the password"),
        (NoPermissionError("User secret has no permissions to run the 'config|get' command"), "the command CONFIG|GET"),
        (NoPermissionError("this user has no permissions to access one of the channels used"), "&eq:*"),
        (NoPermissionError("No permissions to access a key"), "~eq:*"),
        (ResponseError(IN_SCRIPT + "The user executing the script can't run this command"), "what a script calls"),
        (
            ResponseError("unknown command 'WAIT', with args beginning with: 'secret' "),
            "does not know the command WAIT;",
        ),
        (ResponseError(IN_SCRIPT + "Unknown Redis command called from Lua script"), "does not know the command;"),
        (MovedError("3999 10.0.0.1:6381"), "cluster mode"),
        (redis.ConnectionError("max number of clients reached"), "maxclients"),
        (caused(OperationalError("secret"), redis.ConnectionError(HOST), socket.gaierror(-2, "secret")), "(DNS)"),
        (caused(redis.ConnectionError(HOST), PermissionError(errno.EACCES, "secret")), "may not open a file"),
        (caused(redis.ConnectionError(HOST), OSError(errno.EHOSTUNREACH, "secret")), "cannot be reached"),
        (
            caused(redis.ConnectionError(HOST), ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] secret")),
            "does not speak TLS",
        ),
        (redis.ConnectionError("Error while reading: [SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED]"), "ssl_certfile"),
        (redis.ConnectionError("Connection closed by server."), "it may want TLS"),
        (redis.ConnectionError("No master found for 'secret'"), "no Sentinel"),
        (redis.TimeoutError("Timeout reading from secret"), "does not answer in time"),
        (redis.ConnectionError("secret"), "does not answer"),
    ],
)
def test_a_failure_of_redis_is_one_safe_sentence(error: BaseException, said: str) -> None:
    sentence = explain(error)
    assert sentence.startswith("Redis ")
    assert said in sentence
    assert "secret" not in sentence


def test_a_file_that_cannot_be_used_is_told_by_its_folder() -> None:
    error = PermissionError(errno.EACCES, "secret", "/run/embedq/secret")
    assert explain(error) == "the folder /run/embedq cannot be used: Permission denied"


@pytest.mark.parametrize(
    "error",
    [ValueError("secret"), ConnectionRefusedError(errno.ECONNREFUSED, "secret"), ResponseError("WRONGTYPE secret")],
)
def test_what_is_none_of_redis_has_no_sentence(error: BaseException) -> None:
    assert explain(error) == ""
