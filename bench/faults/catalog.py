"""Every fault: what is done to the service, how often, and from which moment its recovery counts."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench.faults.rig import (
    HOUR_S,
    ClockRig,
    LinkedRig,
    Rig,
    SentinelRig,
    continue_group,
    copy_of,
    now,
    put_back,
    stop_group,
)
from stack.testing import Process

_HELD_S = 5.0
"""How long a condition lasts that has no length of its own."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of the table.

    Attributes:
        name: for the command line.
        title: for readers.
        inject: does it; returns when the cause is over, with the moment (`now`) from which the recovery counts.
        rig: what it needs.
        rounds: how often it is done.
        quick: whether the short run has it.
        forgets: Redis itself loses what it had confirmed; callers are told and submit again.
        jobs: its recovery is the next job that a documents worker takes, not the next query that is answered.
        volume: it needs a storage that is a file system of its own.
    """

    name: str
    title: str
    inject: Callable[[Rig], float]
    rig: type[Rig] = Rig
    rounds: int = 3
    quick: bool = True
    forgets: bool = False
    jobs: bool = False
    volume: bool = False


def _kill_api(rig: Rig) -> float:
    rig.api.kill()
    began = now()
    rig.api.launch()
    return began


def _kill_worker(rig: Rig) -> float:
    rig.worker.kill()
    began = now()
    rig.worker.launch()
    return began


def _kill_child(rig: Rig) -> float:
    rig.worker.kill_child()
    return now()


def _kill_documents(rig: Rig) -> float:
    rig.await_job()
    rig.documents.kill()
    began = now()
    rig.documents.launch()
    return began


def _kill_jobs(rig: Rig) -> float:
    rig.await_job()
    rig.documents.kill_child()
    return now()


def _kill_redis(rig: Rig) -> float:
    rig.redis.kill()
    began = now()
    rig.redis.start()
    return began


def _stall_redis(seconds: float, rig: Rig) -> float:
    rig.redis.send(signal.SIGSTOP)
    time.sleep(seconds)
    rig.redis.send(signal.SIGCONT)
    return now()


def _fill_redis(rig: Rig) -> float:
    with rig.redis.client() as client:
        before = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", 2**19)
        time.sleep(_HELD_S)
        client.config_set("maxmemory", before)
    return now()


def _empty_redis(rig: Rig) -> float:
    rig.redis.kill()
    put_back(rig.redis, None)
    began = now()
    rig.redis.start()
    return began


def _roll_back(rig: Rig) -> float:
    copy = rig.folder / "copy"
    copy_of(rig.redis, copy)
    time.sleep(1)
    rig.redis.kill()
    put_back(rig.redis, copy)
    began = now()
    rig.redis.start()
    return began


def _fill_storage(rig: Rig) -> float:
    rig.volume.fill()
    time.sleep(_HELD_S)
    rig.volume.empty()
    return now()


def _lock_storage(rig: Rig) -> float:
    rig.volume.set_read_only(really=True)
    time.sleep(_HELD_S)
    rig.volume.set_read_only(really=False)
    return now()


def _slow_storage(rig: Rig) -> float:
    until = now() + 2 * _HELD_S
    while now() < until:
        rig.volume.freeze(0.4)
        time.sleep(0.1)
    return now()


def _freeze_api(rig: Rig) -> float:
    stop_group(rig.api)
    time.sleep(2 * _HELD_S)
    continue_group(rig.api)
    return now()


def _freeze_worker(rig: Rig) -> float:
    with rig.second():
        stop_group(rig.worker)
        time.sleep(20)  # longer than a lease: the other one takes its work over
        continue_group(rig.worker)
        time.sleep(2)  # what it had is committed now, too late
    return now()


def _roll(rig: Rig) -> float:
    with rig.second() as (api, worker):
        for process in (api, worker, rig.documents, rig.api, rig.worker):
            process.stop()
            process.start()
            time.sleep(1)
        rig.await_ready()
    return now()


def _silence(rig: Rig) -> float:
    assert isinstance(rig, LinkedRig)
    rig.link.silence()
    return now()


def _fail_over(rig: Rig) -> float:
    assert isinstance(rig, LinkedRig)
    rig.fail_over()
    return now()


def _bad_link(rig: Rig) -> float:
    assert isinstance(rig, LinkedRig)
    rig.link.step_s = 0.02
    for _ in range(4):
        time.sleep(2)
        rig.link.cut()
    rig.link.step_s = 0
    return now()


def _promote(rig: Rig) -> float:
    assert isinstance(rig, SentinelRig)
    began = now()
    rig.fail_over()
    return began


def _wrong_clock(hours: int, choose: Callable[[Rig], Sequence[Process]], rig: Rig) -> float:
    assert isinstance(rig, ClockRig)
    rig.set_clocks(hours * HOUR_S, *choose(rig))
    time.sleep(_HELD_S)
    rig.set_clocks(0, *choose(rig))
    return now()


def _clocks() -> Iterator[Fault]:
    roles: dict[str, tuple[str, Callable[[Rig], Sequence[Process]]]] = {
        "redis": ("Redis", lambda rig: (rig.redis,)),
        "api": ("the API", lambda rig: (rig.api,)),
        "workers": ("both workers", lambda rig: (rig.worker, rig.documents)),
    }
    for name, (title, choose) in roles.items():
        for hours, way in ((1, "fast"), (-1, "slow")):
            what = f"the clock of {title} is an hour {way} for {_HELD_S:g} s"
            yield Fault(f"clock-{name}-{way}", what, partial(_wrong_clock, hours, choose), ClockRig, 2, name == "redis")


FAULTS = (
    Fault("api-killed", "`kill -9` of the API", _kill_api),
    Fault("worker-killed", "`kill -9` of the model worker", _kill_worker),
    Fault("model-killed", "`kill -9` of its process with the model", _kill_child),
    Fault("documents-killed", "`kill -9` of the documents worker", _kill_documents, jobs=True, quick=False),
    Fault("jobs-killed", "`kill -9` of its process with the jobs", _kill_jobs, jobs=True),
    Fault("redis-killed", "`kill -9` of Redis", _kill_redis),
    Fault("redis-stalled-5", "Redis stands still for 5 s", partial(_stall_redis, 5), rounds=2),
    Fault("redis-stalled-20", "Redis stands still for 20 s", partial(_stall_redis, 20), rounds=1, quick=False),
    Fault("redis-stalled-60", "Redis stands still for 60 s", partial(_stall_redis, 60), rounds=1, quick=False),
    Fault("redis-full", "Redis is full for 5 s", _fill_redis),
    Fault("storage-full", "the storage is full for 5 s", _fill_storage, volume=True),
    Fault("storage-read-only", "the storage is read-only for 5 s", _lock_storage, volume=True),
    Fault(
        "storage-slow", "the storage is slow for 10 s: 0.4 s for each write", _slow_storage, volume=True, quick=False
    ),
    Fault("api-frozen", "the API is frozen for 10 s", _freeze_api, rounds=2, quick=False),
    Fault("worker-frozen", "a model worker of two is frozen for 20 s", _freeze_worker, rounds=2, quick=False),
    Fault("rolling-restart", "a rolling restart of all roles", _roll, rounds=2),
    Fault("redis-emptied", "Redis comes back empty", _empty_redis, rounds=2, forgets=True),
    Fault("redis-rolled-back", "Redis comes back as it was a second ago", _roll_back, forgets=True),
    Fault("half-open", "all connections to Redis become half-open", _silence, LinkedRig),
    Fault("read-only", "Redis becomes a read-only replica; its address leads to the new master", _fail_over, LinkedRig),
    Fault(
        "bad-link", "a link to Redis that delays each step by 20 ms and is cut four times in 8 s", _bad_link, LinkedRig
    ),
    Fault(
        "sentinel",
        "`kill -9` of the master; Sentinel promotes the replica (`EMBEDQ_REDIS_ACK=replica`)",
        _promote,
        SentinelRig,
        rounds=20,
    ),
    *_clocks(),
)
