from pathlib import Path

import pytest

from stack.errors import StackError
from stack.redis_server import Endpoint, choose_endpoint, default_maxmemory_bytes, find_server, server_command

NOBODY = "no_such_package"


def install(folder: Path, name: str, version: str) -> Path:
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


OLD, NEW = "Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64", "Redis server v=10.0.1 sha=00000000:0"
VALKEY = "Valkey server v=8.1.0 sha=00000000:0"


@pytest.mark.parametrize(
    ("redis", "valkey", "used"),
    [
        (OLD, "", "redis-server"),
        (NEW, "", "redis-server"),
        ("", VALKEY, "valkey-server"),
        (OLD, VALKEY, "valkey-server"),  # the newest
        ("Redis server v=6.0.16 sha=00000000:0", "Valkey server v=7.2.5 sha=0", "valkey-server"),  # too old
    ],
)
def test_a_server_on_path_is_used(path: Path, redis: str, valkey: str, used: str) -> None:
    for name, version in (("redis-server", redis), ("valkey-server", valkey)):
        if version:
            install(path, name, version)
    assert find_server(bundled_by=NOBODY) == path / used


@pytest.mark.parametrize("version", ["Redis server v=5.0.7 sha=0", "not a version", ""])
def test_without_a_server_the_message_says_what_to_install(path: Path, version: str) -> None:
    install(path, "redis-server", version)
    with pytest.raises(StackError, match=r"embedq\[local\].*EMBEDQ_REDIS_URL"):
        find_server(bundled_by=NOBODY)


def test_a_server_on_path_goes_before_the_bundled_one(path: Path) -> None:
    program = install(path, "redis-server", "Redis server v=7.4.0 sha=0")
    assert find_server() == program


def test_the_endpoint_is_a_socket_in_the_data_folder(tmp_path: Path) -> None:
    endpoint = choose_endpoint(tmp_path)
    assert endpoint.url == f"unix://{tmp_path}/redis.sock"
    assert endpoint.arguments()[:2] == ["--port", "0"]


@pytest.mark.parametrize("name", ["x" * 100, "with space", "per%20cent", "what?"])
def test_a_path_that_makes_no_good_url_gives_a_loopback_port(tmp_path: Path, name: str) -> None:
    endpoint = choose_endpoint(tmp_path / name)
    assert endpoint.socket_path is None
    assert endpoint.arguments() == ["--bind", "127.0.0.1", "--port", str(endpoint.port)]
    assert endpoint.url == f"redis://127.0.0.1:{endpoint.port}/0"


def test_the_server_keeps_what_it_has_confirmed(tmp_path: Path) -> None:
    command = server_command(Path("redis-server"), Endpoint(port=1), tmp_path, maxmemory_bytes=1000)
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options == {
        "--bind": "127.0.0.1",
        "--port": "1",
        "--dir": str(tmp_path),
        "--daemonize": "no",
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--save": "",
        "--maxmemory": "1000",
        "--maxmemory-policy": "noeviction",
    }


@pytest.mark.parametrize(("pages", "expected"), [(2**20, 512 * 2**20), (2**22, 4 * 2**30)])
def test_a_quarter_of_the_memory_but_not_too_little(pages: int, expected: int) -> None:
    machine = {"SC_PAGE_SIZE": 4096 if pages == 2**22 else 1024, "SC_PHYS_PAGES": pages}
    assert default_maxmemory_bytes(machine.__getitem__) == expected
