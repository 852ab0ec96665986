"""Sends hostile requests to a whole service, and says what came of them and what they have left behind."""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from bench.hostile.requests import HostileRequest
from stack.testing import Process, wait_until

NO_ANSWER = 0
_NEED_NO_ANSWER = {"half a request", "no HTTP"}
_ANSWER_S = 40.0
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_ENDED = {"completed", "failed", "cancelled", "expired"}
_NO_TTL = -1
_OF_DATASETS = "datasets"
_LIVE = re.compile(rb"eq:held(-until)?|eq:q:.*:(lingering|workers|rates)")


@dataclass(slots=True)
class Outcome:
    """What came of the requests.

    Attributes:
        statuses: by kind of request; `NO_ANSWER` where the connection ended without one.
        defects: requests that were answered with a 5xx, and the answers' beginnings.
    """

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    defects: list[tuple[HostileRequest, bytes]] = field(default_factory=list)

    def add(self, request: HostileRequest, answer: bytes) -> None:
        """Counts one."""
        found = _STATUS.match(answer)
        status = int(found[1]) if found else NO_ANSWER
        self.statuses.setdefault(request.kind, Counter())[status] += 1
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            self.defects.append((request, answer[:600]))

    @property
    def unanswered(self) -> dict[str, int]:
        """Whole requests of which each kind has got no answer."""
        counts = {kind: statuses[NO_ANSWER] for kind, statuses in self.statuses.items()}
        return {kind: count for kind, count in counts.items() if count and kind not in _NEED_NO_ANSWER}

    def rows(self) -> Iterator[tuple[str, int, int, int, int, int]]:
        """For each kind: requests, 2xx and 3xx, 4xx, 5xx, none."""
        for kind, statuses in sorted(self.statuses.items()):
            groups: Counter[int] = Counter()
            for status, count in statuses.items():
                groups[max(status // 100, 2) if status else NO_ANSWER] += count
            yield kind, statuses.total(), groups[2] + groups[3], groups[4], groups[5], groups[NO_ANSWER]


async def send_all(port: int, requests: Iterable[HostileRequest], outcome: Outcome, *, at_once: int = 32) -> None:
    """Sends the requests, each on a connection of its own, and notes what comes."""
    waiting = iter(requests)

    async def send_some() -> None:
        for request in waiting:
            outcome.add(request, await _answer(port, request))

    await asyncio.gather(*(send_some() for _ in range(at_once)))


async def _answer(port: int, request: HostileRequest) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        async with asyncio.timeout(_ANSWER_S):
            writer.write(request.data)
            await writer.drain()
            if request.leaves:
                return b""
            if b"Connection: close" not in request.data:
                writer.write_eof()
            while part := await reader.read(65_536):
                answer += part[: 2**16 - len(answer)]
    except (OSError, TimeoutError):
        pass  # what has come by then is the answer
    finally:
        writer.transport.abort()
    return answer


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

    def added(self, later: "Traces") -> list[str]:
        """What is there later and was not here."""
        return sorted(map(repr, (later.keys - self.keys) | (later.files - self.files)))


def memory_bytes(processes: Iterable[Process]) -> dict[str, int]:
    """Resident memory of each process with the children that live as long as it."""
    found = {}
    for process in processes:
        parent = psutil.Process(process.pid)
        found[process.name] = sum(one.memory_info().rss for one in (parent, *parent.children()))
    return found


def clean_up(client: httpx.Client) -> dict[str, int]:
    """Ends and deletes what the key of this client has, by the routes that everybody has; how many of each."""
    deleted: dict[str, int] = {}
    for kind in ("tasks", "batches", "ingestions", "files"):
        path = f"/v1/{kind}"
        deleted[kind] = sum(_delete(client, f"{path}/{one['id']}", kind) for one in _listed(client, path))
    names = [one["name"] for one in client.get("/v1/datasets", params={"limit": 100}).json()["data"]]
    deleted["datasets"] = sum(client.delete(f"/v1/datasets/{name}").is_success for name in names)
    return deleted


def _listed(client: httpx.Client, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        page = client.get(path, params={"limit": 100, **after}).json()
        found += page["data"]
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


def _delete(client: httpx.Client, path: str, kind: str) -> bool:
    if kind != "files":
        client.post(f"{path}/cancel")
        wait_until(lambda: client.get(path).json()["status"] in _ENDED, timeout_s=60, message=path)
    return client.delete(path).is_success


def wait_clean(client: redis.Redis, storage: Path, before: Traces, *, timeout_s: float) -> list[str]:
    """What is left of all that came since `before`, once nothing is or the time is over."""
    end = time.monotonic() + timeout_s
    while (left := before.added(Traces.of(client, storage))) and time.monotonic() < end:
        time.sleep(0.5)
    return left
