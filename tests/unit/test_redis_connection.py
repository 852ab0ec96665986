"""What the settings of Redis mean, for kombu and for people, and why a Redis does not serve."""

import errno
import socket
import ssl
from typing import Any
from urllib.parse import urlencode

import kombu
import pytest
import redis
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, NoPermissionError, ResponseError
from redis.retry import Retry

from worker_config.redis_connection import (
    TLS,
    Sentinels,
    broker_options,
    explain,
    require_redis_url,
    sentinel_url,
)

TLS_VALUES = {"ssl_cert_reqs": "required", "ssl_check_hostname": "true"}
"""Others take any text."""
ALL_TLS = urlencode({name: TLS_VALUES.get(name, "x") for name in sorted(TLS)})


@pytest.mark.parametrize(
    "url",
    [
        *("secret", "http://:secret@host", "redis+sentinel://:secret@a/ledger", "redis://:secret@host:99999/0"),
        *("redis://:secret@host:port/0", "redis://:secret@[::1/0", "redis://:sec/ret@host:6379"),
        *("redis://secret@a:6379/0", "rediss://secret@a", "unix://secret@/run/r.sock"),
        *("redis://a?password=secret", "redis://a?username=secret", "redis://a?db=2", "redis://a?ssl_ca_certs=/secret"),
        *("redis://a/secret", "redis://u:1?secret@a:6379/0", "redis://u:1/secret@a:6379/0", "redis://u:1#secret@a/0"),
        *("rediss://a?ssl_cert_reqs=secret", "rediss://a?ssl_cert_reqs=required&ssl_cert_reqs=none"),
        *("rediss://a?ssl_min_version=771", "rediss://a?socket_timeout=6"),
        *("unix:///run/r.sock?db=secret", "unix:///run/r.sock?db=1&password=secret", "unix:///run/r.sock?retry=1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_form_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"^must ") as raised:
        require_redis_url(url)
    assert "sec" not in str(raised.value)


def test_a_sentinel_is_a_host_or_a_url_and_what_is_none_is_not_repeated() -> None:
    assert [sentinel_url(text) for text in ("a", "[::1]:3")] == ["redis://a:26379", "redis://[::1]:3"]
    assert sentinel_url("rediss://:s%40t@b?ssl_ca_certs=/ca") == "rediss://:s%40t@b:26379?ssl_ca_certs=/ca"
    for text in ("", "redis://a/0", ":secret@", "unix:///secret", "secret@a", "a:secret"):
        with pytest.raises(ValueError, match=r"^(must|each) ") as raised:
            sentinel_url(text)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("rediss://h:1/2?ssl_cert_reqs=none", "rediss://h:1/2?ssl_cert_reqs=none"),
        ("rediss://h:1/2?ssl_ca_certs=/a", "rediss://h:1/2?ssl_ca_certs=/a&ssl_cert_reqs=required"),
        ("unix://:secret@/run/r.sock?db=1", "redis+socket://:secret@/run/r.sock?virtual_host=1"),
        ("unix://me:p%2Fw@/run/r.sock", "redis+socket://me:p%2Fw@/run/r.sock?virtual_host=0"),
    ],
)
def test_kombu_has_forms_of_its_own(url: str, broker: str) -> None:
    assert broker_options(url, None) == {"broker_url": broker}


@pytest.mark.parametrize(
    "url",
    [
        *("redis://h/2", "redis://me:secr%2Fet@h:1/2", "redis://:secr:et@[::1]:6380/2"),
        *("rediss://h/2?ssl_cert_reqs=none", f"rediss://me:secret@h:1/2?{ALL_TLS}"),
    ],
)
def test_kombu_takes_what_is_not_refused_and_shows_no_password(url: str) -> None:
    connection = kombu.Connection(broker_options(require_redis_url(url), None)["broker_url"])
    tls = connection.ssl
    assert isinstance(tls, dict) is url.startswith("rediss:")
    assert not isinstance(tls, dict) or "ssl_ca_certs" not in url or tls.keys() == TLS
    assert connection.virtual_host == "2"
    assert "secr" not in connection.as_uri()


def test_what_kombu_is_told_of_sentinels() -> None:
    tls: dict[str, Any] = {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}
    query = "ssl_ca_certs=/ca.pem&ssl_check_hostname=false"
    named = Sentinels("ledger", (f"rediss://:s%40t@a:1?{query}", "redis://[::1]:3"))

    options = broker_options(f"rediss://me:p%2Fw@nobody:6379/2?{query}", named)

    times = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5, "retry": Retry(NoBackoff(), 1)}
    assert options == {
        "broker_url": "sentinel://me:p%2Fw@a:1/2;sentinel://me:p%2Fw@[::1]:3/2",
        "broker_use_ssl": tls,
        "broker_transport_options": {
            "master_name": "ledger",
            "sentinel_kwargs": {**times, "password": "s@t", "ssl": True, **tls},
        },
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
        (NoPermissionError("User secret has no permissions to run the 'config|get' command"), "the command CONFIG|GET"),
        (NoPermissionError("this user has no permissions to access one of the channels used"), "&eq:*"),
        (ResponseError(IN_SCRIPT + "The user executing the script can't run this command"), "what a script calls"),
        (ResponseError(IN_SCRIPT + "Unknown Redis command called from Lua script"), "does not know the command;"),
        (MovedError("3999 10.0.0.1:6381"), "cluster mode"),
        (caused(OperationalError("secret"), redis.ConnectionError(HOST), socket.gaierror(-2, "secret")), "(DNS)"),
        (caused(redis.ConnectionError(HOST), PermissionError(errno.EACCES, "secret")), "may not open a file"),
        (caused(redis.ConnectionError(HOST), ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] s")), "does not speak TLS"),
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


def test_what_is_none_of_redis_has_no_sentence_of_it() -> None:
    error = PermissionError(errno.EACCES, "secret", "/run/embedq/secret")
    assert explain(error) == "the folder /run/embedq cannot be used: Permission denied"
    for other in (
        ValueError("secret"),
        ConnectionRefusedError(errno.ECONNREFUSED, "secret"),
        ResponseError("WRONGTYPE"),
    ):
        assert explain(other) == ""
