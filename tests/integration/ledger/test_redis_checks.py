"""A Redis that cannot serve, or not this user: what a role says of it, and that it works when that is mended.

The web tier asks in all tests, a worker where it needs more or asks otherwise.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import RedisUnavailable, WrongRedis
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.read import check_schema
from tests.integration.guarded.certificates import Authority
from tests.link import Link
from tests.processes import RedisServer, free_port
from worker_config.celery_app import bell_queue

ATTEMPTS = 50
BELLS = bell_queue("m")
ALL = ("~*", "&*", "+@all")

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


@pytest.fixture
def parts() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def started(tmp_path: Path, parts: ExitStack) -> Callable[..., RedisServer]:
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


async def why(
    url: str, kind: type[RedisUnavailable] = RedisUnavailable, ask: Ask = asked_by_web_tier, sentence: str = ""
) -> str:
    """What is said of this Redis, in which nobody must find a password. On a busy machine it is asked again."""
    for _ in range(ATTEMPTS):
        with pytest.raises(RedisUnavailable) as raised:
            await ask(url)
        detail = raised.value.detail
        if sentence in detail and "in time" not in detail and (sentence or "firewall" not in detail):
            break
    assert type(raised.value) is kind, raised.value
    assert "secret" not in raised.value.detail
    return raised.value.detail


async def use(url: str, ask: Ask) -> None:
    """It can be used, once a busy machine has let the connection be made in time."""
    for _ in range(ATTEMPTS):
        with suppress(RedisUnavailable):
            await ask(url)
            return
    await ask(url)


async def test_cluster_mode(started: Callable[..., RedisServer]) -> None:
    server = started("--cluster-enabled", "yes")
    for slots in (0, 16_384):
        with server.client() as client:
            if slots:
                client.execute_command("CLUSTER ADDSLOTS", *range(slots))
        for ask in (asked_by_worker, asked_by_web_tier):
            assert "cluster-enabled no" in await why(server.url, WrongRedis, ask)


@pytest.mark.parametrize("command", ["EVAL", "BRPOP"])
async def test_a_command_that_was_renamed_away(started: Callable[..., RedisServer], command: str) -> None:
    server = started("--rename-command", command, "")
    said = [await why(server.url, WrongRedis, asked_by_worker)]
    if command == "BRPOP":  # of workers alone
        await asked_by_web_tier(server.url)
    else:
        said.append(await why(server.url, WrongRedis))
    assert all(f"does not know the command {command}" in each and "rename-command" in each for each in said)


async def test_a_redis_that_throws_work_away_when_it_is_full(started: Callable[..., RedisServer]) -> None:
    server = started("--maxmemory-policy", "volatile-lru")
    assert "CONFIG SET maxmemory-policy noeviction" in await why(server.url, WrongRedis)
    assert "no database of this number" in await why(server.url.removesuffix("/0") + "/99", WrongRedis)
    with server.client() as client:
        client.config_set("maxmemory", 0)
        await asked_by_web_tier(server.url)  # it is never full
        client.lpush(BELLS, "a bell")
        await asked_by_worker(server.url)
        assert (client.keys(), client.llen(BELLS)) == ([BELLS.encode()], 1), "it is tried and stays as it is"


async def test_a_right_that_its_user_lacks(private_redis: RedisServer) -> None:
    url = private_redis.url.replace("//", "//app:secret@")
    lacks = {
        ("~*", "resetchannels", "+@all"): "&eq:*",
        (*ALL, "-@pubsub"): "the command ",
        (*ALL, "-subscribe"): "the command SUBSCRIBE",
        (*ALL, "-publish"): "the command PUBLISH",
        (*ALL, "-eval"): "the command EVAL",
        (*ALL, "-time"): "the command TIME",
    }
    with private_redis.client() as client:
        for rights, lack in lacks.items():
            for ask in (asked_by_worker, asked_by_web_tier):
                client.execute_command("ACL SETUSER", "app", "reset", "on", ">secret", *rights)
                said = await why(url, ask=ask)
                assert lack in said
                assert "NOPERM" in said
                client.execute_command("ACL SETUSER", "app", *ALL)
                await ask(url)
        client.execute_command("ACL SETUSER", "app", "reset", "on", ">secret", "~eq:*", "&*", "+@all")
        assert "~embedq.bell.*" in await why(url, ask=asked_by_worker)
        client.execute_command("ACL SETUSER", "app", *ALL, "-info", "-config")
        await asked_by_web_tier(url)  # what may not be asked is no trouble


async def test_a_login_or_a_client_that_is_refused(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        client.config_set("requirepass", "the right one")
        for login, code in (("", "NOAUTH"), (":secret@", "WRONGPASS"), ("me:secret@", "WRONGPASS")):
            said = await why(private_redis.url.replace("//", f"//{login}"))
            assert code in said
            assert "EMBEDQ_REDIS_URL" in said
        client.config_set("requirepass", "")
        client.config_set("maxclients", 1)
        assert "raise its maxclients" in await why(private_redis.url)
        client.config_set("maxclients", 1000)


async def test_a_replica(private_redis: RedisServer) -> None:
    with private_redis.client() as client:
        client.replicaof("127.0.0.1", free_port())
    assert "must lead to the master" in await why(private_redis.url, ask=asked_by_worker)
    ledger = AsyncLedger.connect(private_redis.url)
    await ledger.require_usable()
    with pytest.raises(RedisUnavailable, match="must lead to the master"):
        await ledger.run(check_schema())
    await ledger.close()


async def test_nobody_listens(tmp_path: Path) -> None:
    for url, sentence in (
        (f"redis://127.0.0.1:{free_port()}/0", "refuses connections"),
        ("redis://:secret@secret.invalid:6379/0", "no address is known for the host"),
        (f"unix://:secret@{tmp_path}/secret.sock", "is not there"),
    ):
        assert sentence in await why(url, ask=asked_by_worker)
        assert sentence in await why(url)


async def test_what_is_wrong_with_tls_is_one_sentence(
    private_redis: RedisServer, parts: ExitStack, tmp_path: Path
) -> None:
    def tls(context: ssl.SSLContext) -> int:
        return parts.enter_context(Link(private_redis.endpoint.port, tls=context)).port

    authority = Authority(tmp_path, "authority")
    port, trusted = tls(authority.server()), f"?ssl_ca_certs={authority.file}"
    for ask in (asked_by_worker, asked_by_web_tier):
        await use(f"rediss://127.0.0.1:{port}/0{trusted}", ask)
        said = await why(f"rediss://:secret@127.0.0.1:{port}/0", ask=ask)
        assert "is not trusted; name its authority with ssl_ca_certs" in said
    (tmp_path / "none.pem").write_text("no certificate")
    asks_for_one = authority.server()
    asks_for_one.verify_mode = ssl.CERT_REQUIRED
    asks_for_one.load_verify_locations(authority.file)
    for url, sentence in (
        (f"rediss://127.0.0.1:{tls(authority.server('127.0.0.2'))}/0{trusted}", "another host"),
        (f"rediss://127.0.0.1:{tls(authority.server(days=-1))}/0{trusted}", "has expired"),
        (f"rediss://127.0.0.1:{tls(asks_for_one)}/0{trusted}", "ssl_certfile"),
        (f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/secret.pem", "is not there"),
        (f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/none.pem", "look at the files that EMBEDQ_REDIS_URL"),
        (f"rediss://127.0.0.1:{private_redis.endpoint.port}/0", "TLS"),
        (f"redis://127.0.0.1:{port}/0", "it may want TLS (rediss:// in EMBEDQ_REDIS_URL)"),
    ):
        assert sentence in await why(url, sentence=sentence)
