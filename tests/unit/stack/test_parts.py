"""Parts of the local stack without its processes: the lock of its folder, ports, and which Redis with which options."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stack.data_folder import locked
from stack.errors import StackError
from stack.ports import free_port, require_free
from stack.redis_server import Endpoint, choose_endpoint, find_server, server_command

NOBODY = "no_such_package"
OLD, NEW = "Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64", "Redis server v=10.0.1 sha=00000000:0"
VALKEY = "Valkey server v=8.1.0 sha=00000000:0"


def test_the_lock_lives_on_in_whoever_inherited_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with locked(folder) as descriptor:
        assert folder.stat().st_mode & 0o777 == 0o700, "it is for its owner alone"
        heir = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[descriptor], stdin=subprocess.PIPE)
    with pytest.raises(StackError, match=rf"pid {os.getpid()}\) uses {folder}"), locked(folder, patience_s=0):
        pass
    heir.communicate(b"\n")
    with locked(folder, patience_s=0):
        pass


def test_a_free_port_is_none_that_the_kernel_gives_to_connections_and_a_taken_one_is_refused() -> None:
    assert free_port() < 32_768
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        require_free("127.0.0.1", port)
        listening.listen()
        with pytest.raises(StackError, match=f"Port {port} is taken"):
            require_free("127.0.0.1", port)


@pytest.mark.parametrize(
    ("redis", "valkey", "used"),
    [
        (OLD, "", "redis-server"),
        (NEW, "", "redis-server"),
        ("", VALKEY, "valkey-server"),
        (OLD, VALKEY, "valkey-server"),  # the newest
        ("Redis server v=6.0.16 sha=00000000:0", "Valkey server v=7.2.5 sha=0", "valkey-server"),  # too old
        ("Redis server v=5.0.7 sha=0", "", None),
        ("not a version", "", None),
    ],
)
def test_the_newest_server_on_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis: str, valkey: str, used: str | None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, version in (("redis-server", redis), ("valkey-server", valkey)):
        if version:
            (tmp_path / name).write_text(f"#!/bin/sh\necho '{version}'\n")
            (tmp_path / name).chmod(0o755)
    if used:
        assert find_server() == tmp_path / used
    else:
        with pytest.raises(StackError, match=r"embedq\[local\].*EMBEDQ_REDIS_URL"):
            find_server(bundled_by=NOBODY)


@pytest.mark.parametrize("name", ["x" * 100, "with space", "per%20cent", "what?"])
def test_a_path_that_makes_no_good_url_gives_a_loopback_port(tmp_path: Path, name: str) -> None:
    endpoint = choose_endpoint(tmp_path / name)
    assert endpoint.arguments() == ["--bind", "127.0.0.1", "--port", str(endpoint.port)]
    assert endpoint.url == f"redis://127.0.0.1:{endpoint.port}/0"


def test_the_server_keeps_what_it_has_confirmed(tmp_path: Path) -> None:
    command = server_command(Path("redis-server"), Endpoint(port=1), tmp_path, maxmemory_bytes=1000)
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert (
        options.items()
        >= {
            "--dir": str(tmp_path),
            "--appendonly": "yes",
            "--appendfsync": "always",
            "--save": "",
            "--maxmemory": "1000",
            "--maxmemory-policy": "noeviction",
        }.items()
    )
