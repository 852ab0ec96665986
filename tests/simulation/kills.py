"""Real processes: workers, clients and Redis are killed (`appendfsync always`), and every accepted task is counted."""

import itertools
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.processes import RedisServer, wait_until
from tests.simulation.thin_client import Finished, Ledger, NewTask, Piece

T = TypeVar("T")

_OWNERS = [f"o{n}" for n in range(4)]
_WORKERS, _CLIENTS = 3, 2
_REDIS_LIVES_S = 3
_SETTLED_S = 90
_PAUSE_S = 0.02
_TASK_TTL_MS = 10**7
_LEASE_MS = 2000
_processes = get_context("fork")


@dataclass(frozen=True)
class Found:
    """What was there in the end. All but `accepted` and `kills` must be 0."""

    accepted: int
    kills: Counter[str]
    lost: int
    open: int
    failed: int
    doubled: int
    leases: int


def run(seconds: float) -> Found:
    """Lets workers and clients run for so long, kills them meanwhile, and waits until all is done."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = RedisServer(folder).start()
        fleet = _Fleet(server.url, folder / "accepted")
        try:
            kills = _kill(server, fleet, seconds)
            fleet.stop_clients()
            return _count(_ledger(server.url), (folder / "accepted").read_text().split(), kills)
        finally:
            fleet.stop()
            server.stop()


class _Fleet:
    """Workers and clients, each in a process."""

    def __init__(self, url: str, accepted: Path) -> None:
        self._begin: list[Callable[[], BaseProcess]] = [
            *(lambda n=n: _started(_worker, url, f"w{n}") for n in range(_WORKERS)),
            *(lambda n=n: _started(_client, url, f"c{n}", accepted) for n in range(_CLIENTS)),
        ]
        self._all = [begin() for begin in self._begin]

    def kill_one(self) -> str:
        """Kills one of them and starts the next one; which kind it was."""
        n = random.choice([*range(_WORKERS), *range(_WORKERS), *range(_WORKERS, len(self._all))])  # noqa: S311
        _killed(self._all[n])
        self._all[n] = self._begin[n]()
        return "worker" if n < _WORKERS else "client"

    def stop_clients(self) -> None:
        """No new task comes from here on."""
        for process in self._all[_WORKERS:]:
            _killed(process)

    def stop(self) -> None:
        """All of them."""
        for process in self._all:
            _killed(process)


def _started(run: Callable[..., None], *arguments: Any) -> BaseProcess:
    process = _processes.Process(target=run, args=arguments, daemon=True)
    process.start()
    return process


def _killed(process: BaseProcess) -> None:
    process.kill()
    process.join()


def _kill(server: RedisServer, fleet: _Fleet, seconds: float) -> Counter[str]:
    kills = Counter[str]()
    ends, next_redis = time.monotonic() + seconds, time.monotonic() + _REDIS_LIVES_S
    while time.monotonic() < ends:
        time.sleep(random.random() * 0.6)  # noqa: S311
        kills[fleet.kill_one()] += 1
        if time.monotonic() > next_redis:
            server.kill()
            server.start()
            kills["redis"] += 1
            next_redis = time.monotonic() + _REDIS_LIVES_S
    return kills


def _ledger(url: str) -> Ledger:
    client = redis.Redis.from_url(url, socket_timeout=3, retry=Retry(NoBackoff(), 0))
    return Ledger(client, now_ms=None)


def _patient(call: Callable[..., T], *arguments: Any, **how: Any) -> T:
    """Repeats a call until there is a reply, as a worker or a client does: all scripts are idempotent."""
    while True:
        try:
            return call(*arguments, **how)
        except redis.RedisError as error:
            if isinstance(error, redis.ResponseError) and "LOADING" not in str(error):
                raise
            time.sleep(_PAUSE_S)


def _worker(url: str, name: str) -> None:
    ledger, numbers, stream = _ledger(url), itertools.count(), f"{name}/0"
    boot = f"{os.getpid()}.{time.time_ns()}"
    _patient(ledger.heartbeat, "join", name, ttl_ms=3000)
    beaten, wakes = time.monotonic(), None
    while True:
        try:
            if wakes is None:
                wakes = ledger.redis.pubsub()
                wakes.subscribe(f"eq:q:m:wake:{stream}")
            token = f"{stream}/{boot}/{next(numbers)}"
            if time.monotonic() - beaten > 1:
                ledger.heartbeat("beat", name, ttl_ms=3000)
                beaten = time.monotonic()
            how: dict[str, Any] = {"budget": 2000, "max_pieces": 32, "lease_ms": _LEASE_MS, "linger_ms": 500}
            claim = _patient(ledger.claim, stream, token, rang=True, **how)
            if claim.pieces:
                time.sleep(random.random() * _PAUSE_S)  # noqa: S311
                _patient(ledger.commit, token, [_finished(piece, token) for piece in claim.pieces])
            elif claim.wait_ms:
                wakes.get_message(timeout=claim.wait_ms / 1000)
        except redis.RedisError:
            wakes = None
            time.sleep(_PAUSE_S)


def _finished(piece: Piece, token: str) -> Finished:
    """It says of each item by whom it was done."""
    return Finished(piece, f"{piece.task}:{piece.first}:{token};".encode() * piece.items)


def _client(url: str, name: str, accepted: Path) -> None:
    """Writes ids to the file only when SUBMIT has replied."""
    ledger = _ledger(url)
    with accepted.open("ab", buffering=0) as file:
        for n in itertools.count():
            tasks = [_task(f"{name}.{os.getpid()}.{n}.{k}") for k in range(random.choice([1, 1, 3]))]  # noqa: S311
            replies, _ = _patient(ledger.submit, *tasks)
            assert all(reply[0] == b"ok" for reply in replies), replies
            file.write("".join(f"{task.id}\n" for task in tasks).encode())
            time.sleep(0.008)


def _task(task_id: str) -> NewTask:
    return NewTask(
        task_id,
        owner=random.choice(_OWNERS),  # noqa: S311
        pieces=[(2, 10, b'["a","b"]')] * random.choice([1, 1, 4]),  # noqa: S311
        ttl_ms=_TASK_TTL_MS,
        lane=random.choice(["online", "bulk"]),  # noqa: S311
        listed=True,
    )


def _count(ledger: Ledger, ids: list[str], kills: Counter[str]) -> Found:
    def idle() -> bool:
        state = _patient(lambda: ledger.state)
        return not any(state.get(f"open_{lane}") for lane in ("online", "bulk"))

    wait_until(idle, timeout_s=_SETTLED_S, message="work is left")
    wait_until(lambda: not ledger.redis.zcard("eq:q:m:leases"), timeout_s=_SETTLED_S, message="leases are left")
    found = Counter[str]()
    for task_id in ids:
        task = ledger.read(task_id)
        if task is None:
            found["lost"] += 1
            continue
        found["open"] += task.is_open
        found["failed"] += task["failed"]
        found["doubled"] += sum(items for items, _ in task.outcomes.values()) != task["completed"]
        found["doubled"] += any(
            value.count(b";") != items or len(set(value.split(b";")[:-1])) != 1
            for items, value in task.outcomes.values()
        )
    names = ("lost", "open", "failed", "doubled")
    return Found(len(ids), kills, **{name: found[name] for name in names}, leases=ledger.redis.zcard("eq:q:m:leases"))
