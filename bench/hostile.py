"""`make hostile`: hostile requests to a whole service with the fake encoder; exit code 1 if one did harm.

schemathesis sends requests that fit the OpenAPI document and that do not; this file sends what is no HTTP. It fails if
a request was answered with a 5xx, if a process grew by more than 10 % after the first quarter, if a query is not
answered afterwards, or if anything is left after all that the key owns is deleted.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from bench.report import markdown
from tests.processes import ApiProcess, Process, RedisServer, Roles, wait_until

_KEY = "key-of-the-attacker"
_MAX_GROWTH = 0.10
_MIB = 2**20
_ANSWER_S = 40.0
_OPEN = {"queued", "in_progress", "validating", "finalizing", "cancelling"}
_NO_TTL = -1
_OF_DATASETS = "datasets"
_LIVE = re.compile(rb"eq:held(-until)?|eq:q:.*:(lingering|workers|rates)")
_POST = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n"
RAW = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET\r\n\r\n",
    b"\r\n" * 50,
    b"\0" * 300,
    b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET  /  HTTP/1.1\r\nHost: a\r\n\r\n",
    b"FOO /v1/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    _POST + b"Content-Length: -1\r\n\r\n",
    _POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    _POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
    _POST + b"Transfer-Encoding: gzip\r\n\r\n",
    _POST + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    _POST + b'Content-Length: 17\r\n\r\n{"input":"\\ud800"',
    _POST + b"Content-Length: 800\r\n\r\n" + b"[" * 400 + b"]" * 400,
    _POST + b"Content-Length: 100\r\n\r\nhalf",
    _POST + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 9\r\n\r\n--x\r\n\r\nab",
    b"GET /v1/tasks/%00%ff HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/files/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nHost: a\r\nRange: bytes=5-1\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\n x: folded\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nx\0y: z\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
)
"""What is no HTTP, or hardly."""


async def send_raw(api: ApiProcess) -> dict[bytes, bytes]:
    """Each of `RAW` on a connection of its own, closed behind it: those that were answered with a 5xx, and how."""
    answers = await asyncio.gather(*(_answer(int(api.base_url.rpartition(":")[2]), data) for data in RAW))
    return {data: answer for data, answer in zip(RAW, answers, strict=True) if answer.startswith(b"HTTP/1.1 5")}


async def _answer(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(_ANSWER_S):
            writer.write(data)
            writer.write_eof()
            return await reader.read(600)
    except (ConnectionError, TimeoutError):
        return b""
    finally:
        writer.transport.abort()


@dataclass(frozen=True, slots=True)
class Traces:
    """What a service has stored: keys of Redis that do not expire, and files.

    Without files of datasets: the lock of a deleted one stays.
    Without the accounts of results, which end with these, and without what live workers say of themselves.
    """

    keys: frozenset[bytes]
    files: frozenset[Path]

    @classmethod
    def of(cls, client: redis.Redis, storage: Path) -> "Traces":
        """As it is now."""
        keys = (key for key in client.scan_iter(count=1000) if client.ttl(key) == _NO_TTL)
        walked = os.walk(storage)  # not rglob, which fails on a folder that the service deletes meanwhile
        files = (Path(folder, name).relative_to(storage) for folder, _, names in walked for name in names)
        return cls(
            frozenset(key for key in keys if not _LIVE.fullmatch(key)),
            frozenset(path for path in files if path.parts[0] != _OF_DATASETS),
        )

    def left(self, client: redis.Redis, storage: Path, *, timeout_s: float) -> list[str]:
        """What came since and stays, once nothing does or the time is over."""
        end = time.monotonic() + timeout_s
        while True:
            later = Traces.of(client, storage)
            left = (later.keys - self.keys) | (later.files - self.files)
            if not left or time.monotonic() > end:
                return sorted(map(repr, left))
            time.sleep(0.5)


def clean_up(client: httpx.Client) -> None:
    """Ends and deletes what the key of this client has, by the routes that everybody has."""
    for kind in ("tasks", "batches", "ingestions", "files"):
        while found := client.get(f"/v1/{kind}", params={"limit": 100}).json()["data"]:
            for path in (f"/v1/{kind}/{one['id']}" for one in found):
                if kind != "files":
                    client.post(f"{path}/cancel")
                    wait_until(partial(_ended, client, path), message=path)
                client.delete(path).raise_for_status()
    for one in client.get("/v1/datasets", params={"limit": 100}).json()["data"]:
        client.delete(f"/v1/datasets/{one['name']}").raise_for_status()


def _ended(client: httpx.Client, path: str) -> bool:
    return client.get(path).json()["status"] not in _OPEN


def warm_up(client: httpx.Client) -> None:
    """Has each role do what loads libraries or makes something for ever."""
    client.post("/v1/embeddings", json={"input": "a good query"}).raise_for_status()
    body: dict[str, Any] = {"source": {"documents": [{"id": "1", "text": "a"}]}}
    body["sink"] = {"type": "dataset", "dataset": "warm"}
    path = f"/v1/ingestions/{client.post('/v1/ingestions', json=body).raise_for_status().json()['id']}"
    wait_until(partial(_ended, client, path), message="an ingestion")
    # 503 of a busy machine comes before anything is done.
    wait_until(
        lambda: client.post("/v1/datasets/warm/search", json={"query": "a"}).status_code != 503, message="a search"
    )
    clean_up(client)


def _memory_mib(processes: Iterable[Process]) -> dict[str, float]:
    """Of each process with the children that live as long as it."""
    trees = {each.name: [psutil.Process(each.pid), *psutil.Process(each.pid).children()] for each in processes}
    return {name: sum(one.memory_info().rss for one in tree) / _MIB for name, tree in trees.items()}


def _attack(api: ApiProcess, examples: int, seed: int) -> bool:
    """Whether something was answered with a 5xx; says what."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{api.base_url}/openapi.json", "--no-color"]
    command += ["--checks", "not_a_server_error", "--max-examples", str(examples), "--seed", str(seed)]
    command += ["--header", f"Authorization: Bearer {_KEY}", "--suppress-health-check", "all"]
    failed = subprocess.run(command, check=False, cwd=api.folder).returncode != 0
    defects = {data: answer for _ in range(examples) for data, answer in asyncio.run(send_raw(api)).items()}
    for data, answer in defects.items():
        print(f"5xx: {data[:300]!r}\n  -> {answer!r}")
    return failed or bool(defects)


def main() -> int:
    """Runs the trial and prints its tables; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="of each route (default: %(default)s)")
    examples = parser.parse_args().examples
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server, storage = RedisServer(Path(folder) / "redis", appendfsync="no"), Path(folder) / "storage"
        stack.callback(server.stop)
        roles = stack.enter_context(Roles(Path(folder), server.start().url))
        roles.worker(storage_url=storage)
        roles.documents(storage_url=storage)
        api = roles.api(storage_url=storage, api_keys=f"attacker:{sha256(_KEY.encode()).hexdigest()}")
        connection, client = stack.enter_context(server.client()), stack.enter_context(api.client())
        api.wait_ready()
        client.headers["authorization"] = f"Bearer {_KEY}"
        warm_up(client)
        before = Traces.of(connection, storage)
        harm = _attack(api, examples // 4, seed=1)
        early = _memory_mib(roles.processes)
        harm |= _attack(api, examples - examples // 4, seed=2)
        late = _memory_mib(roles.processes)
        warm_up(client)
        left = before.left(connection, storage, timeout_s=120)
    rows = [[name, f"{early[name]:.0f}", f"{late[name]:.0f}"] for name in early]
    print(markdown(["process", "MiB after a quarter", "MiB at the end"], rows), f"\n\nleft: {left or 'nothing'}")
    grown = any(late[name] > early[name] * (1 + _MAX_GROWTH) for name in early)
    return 1 if harm or grown or left else 0


if __name__ == "__main__":
    sys.exit(main())
