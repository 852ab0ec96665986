"""A Redis that cannot serve, or not this user: what a role says of it, and that it works when that is mended."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tasks.errors import RedisUnavailable, WrongRedis
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.read import check_schema
from tests.integration.guarded.certificates import Authority
from tests.link import Link
from tests.processes import RedisServer, free_port
from worker_config.celery_app import bell_queue

ATTEMPTS = 5
BELLS = bell_queue("m")

Ask = Callable[[str], Any]


async def asked_by_worker(url: str) -> None:
    ledger = Ledger.connect(url)
    try:
        ledger.try_out(BELLS).require_usable()
    finally:
        ledger.close()


async def asked_by_web_tier(url: str) -> None:
    ledger = AsyncLedger.connect(url)
    try:
        await ledger.require_usable()
    finally:
        await ledger.close()


@pytest.fixture(params=[asked_by_worker, asked_by_web_tier], ids=["worker", "web"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Tries what a role needs of the Redis at a URL."""
    asking: Ask = request.param
    return asking


@pytest.fixture
def parts() -> Iterator[ExitStack]:
    """What is stopped at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def started(tmp_path: Path, parts: ExitStack) -> Callable[..., RedisServer]:
    """Starts a Redis with these options."""

    def start(*options: str) -> RedisServer:
        server = RedisServer(tmp_path / "redis", options=options)
        while "--cluster-enabled" in options and not _has_port_for_cluster(server):
            server = RedisServer(tmp_path / "redis", options=options)
        parts.callback(server.stop)
        return server.start()

    return start


def _has_port_for_cluster(server: RedisServer) -> bool:
    with suppress(OSError, OverflowError), socket.create_server(("127.0.0.1", server.endpoint.port + 10_000)):
        return True
    return False


async def why(ask: Ask, url: str, kind: type[RedisUnavailable] = RedisUnavailable) -> str:
    """What is said of this Redis, in which nobody must find a password. One of a busy machine may be asked again."""
    for _ in range(ATTEMPTS):
        with pytest.raises(RedisUnavailable) as raised:
            await ask(url)
        if "in time" not in raised.value.detail:
            break
    assert type(raised.value) is kind, raised.value
    assert "secret" not in raised.value.detail
    return raised.value.detail


async def test_a_good_one_is_tried_and_stays_as_it_is(ask: Ask, private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        client.lpush(BELLS, "a bell")
        await ask(private_redis.url)
        assert client.keys() == [BELLS.encode()]
        assert client.llen(BELLS) == 1
        client.delete(BELLS)


# Wrong for good.


@pytest.mark.parametrize("slots", [0, 8_000, 16_384], ids=["no slots", "half of the slots", "one shard"])
async def test_cluster_mode(ask: Ask, started: Callable[..., RedisServer], slots: int) -> None:
    server = started("--cluster-enabled", "yes")
    with server.client() as client:
        if slots:
            client.execute_command("CLUSTER ADDSLOTS", *range(slots))
    assert "cluster-enabled no" in await why(ask, server.url, WrongRedis)


@pytest.mark.parametrize("command", ["EVAL", "PUBLISH", "SUBSCRIBE"])
async def test_a_command_that_was_renamed_away(ask: Ask, started: Callable[..., RedisServer], command: str) -> None:
    server = started("--rename-command", command, "")
    said = await why(ask, server.url, WrongRedis)
    assert f"does not know the command {command}" in said
    assert "rename-command" in said


async def test_a_worker_needs_brpop(started: Callable[..., RedisServer]) -> None:
    server = started("--rename-command", "BRPOP", "")
    assert "does not know the command BRPOP" in await why(asked_by_worker, server.url, WrongRedis)
    await asked_by_web_tier(server.url)


async def test_a_database_that_is_not_there(ask: Ask, private_redis: RedisServer) -> None:
    url = private_redis.url.removesuffix("/0") + "/99"
    assert "no database of this number" in await why(ask, url, WrongRedis)


async def test_a_redis_that_throws_work_away_when_it_is_full(ask: Ask, started: Callable[..., RedisServer]) -> None:
    server = started("--maxmemory-policy", "volatile-lru")
    assert "CONFIG SET maxmemory-policy noeviction" in await why(ask, server.url, WrongRedis)
    with server.client() as client:
        client.config_set("maxmemory", 0)
    await ask(server.url)  # it is never full


# Wrong until somebody mends it, or by itself.


@pytest.mark.parametrize(
    ("rights", "lacks"),
    [
        (("~*", "resetchannels", "+@all"), "&eq:*"),
        (("~*", "&*", "+@all", "-@pubsub"), "the command "),
        (("~*", "&*", "+@all", "-subscribe"), "the command SUBSCRIBE"),
        (("~*", "&*", "+@all", "-publish"), "the command PUBLISH"),
        (("~*", "&*", "+@all", "-eval"), "the command EVAL"),
        (("~*", "&*", "+@all", "-time"), "the command TIME"),
    ],
)
async def test_a_right_that_its_user_lacks(
    ask: Ask, private_redis: RedisServer, rights: tuple[str, ...], lacks: str
) -> None:
    with private_redis.client() as client:
        client.execute_command("ACL SETUSER", "app", "on", ">secret", *rights)
        url = private_redis.url.replace("//", "//app:secret@")
        said = await why(ask, url)
        assert lacks in said
        assert "NOPERM" in said
        client.execute_command("ACL SETUSER", "app", "~*", "&*", "+@all")
        await ask(url)


async def test_keys_that_its_user_may_not_use(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        client.execute_command("ACL SETUSER", "app", "on", ">secret", "~eq:*", "&*", "+@all")
        assert "~embedq.bell.*" in await why(asked_by_worker, private_redis.url.replace("//", "//app:secret@"))


async def test_what_may_not_be_asked_is_no_trouble(ask: Ask, private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        client.execute_command("ACL SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info", "-config")
    await ask(private_redis.url.replace("//", "//app:secret@"))


@pytest.mark.parametrize("login", ["", ":secret@", "me:secret@"])
async def test_a_login_that_is_refused(ask: Ask, private_redis: RedisServer, login: str) -> None:
    with private_redis.client() as client:
        client.config_set("requirepass", "the right one")
        said = await why(ask, private_redis.url.replace("//", f"//{login}"))
        client.config_set("requirepass", "")
    assert ("WRONGPASS" if login else "NOAUTH") in said
    assert "EMBEDQ_REDIS_URL" in said


async def test_a_replica(started: Callable[..., RedisServer]) -> None:
    server = started("--replicaof", "127.0.0.1", str(free_port()))
    assert "must lead to the master" in await why(asked_by_worker, server.url)


async def test_a_replica_is_told_apart_by_the_web_tier(started: Callable[..., RedisServer]) -> None:
    ledger = AsyncLedger.connect(started("--replicaof", "127.0.0.1", str(free_port())).url)
    await ledger.require_usable()
    with pytest.raises(RedisUnavailable, match="must lead to the master"):
        await ledger.run(check_schema())
    await ledger.close()


async def test_too_many_clients(ask: Ask, private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        client.config_set("maxclients", 1)
        assert "raise its maxclients" in await why(ask, private_redis.url)
        client.config_set("maxclients", 1000)


async def test_nobody_listens(ask: Ask) -> None:
    assert "refuses connections" in await why(ask, f"redis://127.0.0.1:{free_port()}/0")


async def test_a_host_without_an_address(ask: Ask) -> None:
    said = await why(ask, "redis://:secret@secret.invalid:6379/0")
    assert "no address is known for the host" in said


async def test_a_socket_that_is_not_there(ask: Ask, tmp_path: Path) -> None:
    assert "is not there" in await why(ask, f"unix://:secret@{tmp_path}/secret.sock")


async def test_another_program_at_the_port(ask: Ask, parts: ExitStack) -> None:
    def answer() -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    connection.recv(1024)

    listener = socket.create_server(("127.0.0.1", 0))
    other = Thread(target=answer)
    other.start()
    parts.callback(listener.close)
    parts.callback(other.join)
    parts.callback(listener.shutdown, socket.SHUT_RDWR)
    said = await why(ask, f"redis://127.0.0.1:{listener.getsockname()[1]}/0")
    assert "is not what answers" in said


# TLS.


@pytest.fixture
def tls(private_redis: RedisServer, parts: ExitStack) -> Callable[[ssl.SSLContext], int]:
    """The port of the Redis behind TLS."""
    return lambda context: parts.enter_context(Link(private_redis.endpoint.port, tls=context)).port


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


async def test_a_certificate_that_is_trusted(ask: Ask, tls: Callable[..., int], authority: Authority) -> None:
    await ask(f"rediss://127.0.0.1:{tls(authority.server())}/0?ssl_ca_certs={authority.file}")


async def test_an_authority_that_was_not_named(ask: Ask, tls: Callable[..., int], authority: Authority) -> None:
    said = await why(ask, f"rediss://:secret@127.0.0.1:{tls(authority.server())}/0")
    assert "certificate that is not trusted; name its authority with ssl_ca_certs" in said


async def test_the_certificate_of_another_host(ask: Ask, tls: Callable[..., int], authority: Authority) -> None:
    port = tls(authority.server("127.0.0.2"))
    assert "another host" in await why(ask, f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.file}")


async def test_a_certificate_that_has_expired(ask: Ask, tls: Callable[..., int], authority: Authority) -> None:
    port = tls(authority.server(days=-1))
    assert "has expired" in await why(ask, f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.file}")


async def test_a_client_without_the_certificate_that_is_wanted(
    ask: Ask, tls: Callable[..., int], authority: Authority
) -> None:
    context = authority.server()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    said = await why(ask, f"rediss://127.0.0.1:{tls(context)}/0?ssl_ca_certs={authority.file}")
    assert "ssl_certfile" in said


async def test_a_file_of_tls_that_is_not_there(
    ask: Ask, tls: Callable[..., int], authority: Authority, tmp_path: Path
) -> None:
    said = await why(ask, f"rediss://127.0.0.1:{tls(authority.server())}/0?ssl_ca_certs={tmp_path}/secret.pem")
    assert "is not there" in said


async def test_a_file_of_tls_that_is_none(
    ask: Ask, tls: Callable[..., int], authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    said = await why(ask, f"rediss://127.0.0.1:{tls(authority.server())}/0?ssl_ca_certs={tmp_path}/none.pem")
    assert "look at the files that EMBEDQ_REDIS_URL names" in said


async def test_tls_to_a_port_without_it(ask: Ask, private_redis: RedisServer) -> None:
    said = await why(ask, private_redis.url.replace("redis://", "rediss://"))
    assert "TLS" in said
    assert "EMBEDQ_REDIS_URL" in said


async def test_a_port_of_tls_without_tls(ask: Ask, tls: Callable[..., int], authority: Authority) -> None:
    said = await why(ask, f"redis://127.0.0.1:{tls(authority.server())}/0")
    assert "it may want TLS (rediss:// in EMBEDQ_REDIS_URL)" in said


# Its data.


def test_a_redis_that_lost_its_data_is_claimed_again_and_said_once(private_redis: RedisServer) -> None:
    ledger, other = Ledger.connect(private_redis.url), Ledger.connect(private_redis.url)
    with private_redis.client() as client:
        assert [ledger.run(check_schema()), ledger.run(check_schema()), other.run(check_schema())] == [
            True,
            False,
            False,
        ]
        client.flushall()
        assert [other.run(check_schema()), ledger.run(check_schema())] == [True, False]
    ledger.close()
    other.close()
