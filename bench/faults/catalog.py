"""Every fault: what is done to the service. Each returns when its cause is over."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.faults.rig import LinkedRig, Rig, SentinelRig, VolumeRig
from tests.processes import Process, RedisServer

_HELD_S = 5.0
"""How long a condition lasts that has no length of its own."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of the table.

    Attributes:
        title: for readers.
        inject: does it; is given a rig of the kind that it needs.
        forgets: Redis itself loses what it had confirmed; callers are told and submit again.
    """

    title: str
    inject: Callable[[Any], None]
    rig: type[Rig] = Rig
    forgets: bool = False


def _kill(choose: Callable[[Rig], Process], rig: Rig) -> None:
    process = choose(rig)
    process.kill()
    process.launch()


def _freeze(choose: Callable[[Rig], Process], seconds: float, rig: Rig) -> None:
    group = choose(rig).pid
    os.killpg(group, signal.SIGSTOP)
    time.sleep(seconds)
    os.killpg(group, signal.SIGCONT)


def _freeze_one_of_two(rig: Rig) -> None:
    second = rig.roles.worker(**rig.settings)
    _freeze(lambda rig: rig.worker, 20, rig)  # longer than a lease: the other one takes its work over
    time.sleep(2)  # what it had is committed now, too late
    second.stop()
    rig.roles.processes.remove(second)


def _roll(rig: Rig) -> None:
    for process in (rig.documents, rig.api, rig.worker):
        process.stop()
        process.start()


def _fill_redis(rig: Rig) -> None:
    with rig.redis.client() as client:
        before = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", 2**19)
        time.sleep(_HELD_S)
        client.config_set("maxmemory", before)


def _empty_redis(rig: Rig) -> None:
    rig.redis.kill()
    _put_back(rig.redis, None)
    rig.redis.launch()


def _roll_back(rig: Rig) -> None:
    copy = rig.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(rig.redis.folder, copy, ignore=shutil.ignore_patterns("*.log"))
    time.sleep(1)
    rig.redis.kill()
    _put_back(rig.redis, copy)
    rig.redis.launch()


def _put_back(redis: RedisServer, copy: Path | None) -> None:
    """Redis, which is down, has what the copy has, or nothing."""
    for path in redis.folder.iterdir():
        if path != redis.log_file:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if copy is not None:
        shutil.copytree(copy, redis.folder, dirs_exist_ok=True)


def _fill_storage(rig: VolumeRig) -> None:
    rig.fill()
    time.sleep(_HELD_S)
    rig.empty()


def _lock_storage(rig: VolumeRig) -> None:
    rig.remount("ro")
    time.sleep(_HELD_S)
    rig.remount("rw")


def _bad_link(rig: LinkedRig) -> None:
    rig.link.step_s = 0.02
    for _ in range(4):
        time.sleep(2)
        rig.link.cut()
    rig.link.step_s = 0


FAULTS: Mapping[str, Fault] = {
    "api-killed": Fault("`kill -9` of the API", partial(_kill, lambda rig: rig.api)),
    "worker-killed": Fault("`kill -9` of the model worker", partial(_kill, lambda rig: rig.worker)),
    "model-killed": Fault("`kill -9` of its process with the model", lambda rig: rig.worker.kill_child()),
    "documents-killed": Fault("`kill -9` of the documents worker", partial(_kill, lambda rig: rig.documents)),
    "jobs-killed": Fault("`kill -9` of its process with the jobs", lambda rig: rig.documents.kill_child()),
    "redis-killed": Fault("`kill -9` of Redis", partial(_kill, lambda rig: rig.redis)),
    "redis-stalled-5": Fault("Redis stands still for 5 s", partial(_freeze, lambda rig: rig.redis, 5)),
    "redis-stalled-20": Fault("Redis stands still for 20 s", partial(_freeze, lambda rig: rig.redis, 20)),
    "redis-full": Fault("Redis is full for 5 s", _fill_redis),
    "storage-full": Fault("the storage is full for 5 s", _fill_storage, VolumeRig),
    "storage-read-only": Fault("the storage is read-only for 5 s", _lock_storage, VolumeRig),
    "api-frozen": Fault("the API is frozen for 10 s", partial(_freeze, lambda rig: rig.api, 10)),
    "worker-frozen": Fault("a model worker of two is frozen for 20 s", _freeze_one_of_two),
    "rolling-restart": Fault("a rolling restart of all roles", _roll),
    "redis-emptied": Fault("Redis comes back empty", _empty_redis, forgets=True),
    "redis-rolled-back": Fault("Redis comes back as it was a second ago", _roll_back, forgets=True),
    "half-open": Fault("all connections to Redis become half-open", lambda rig: rig.link.silence(), LinkedRig),
    "bad-link": Fault(
        "a link to Redis that delays each step by 20 ms and is cut four times in 8 s", _bad_link, LinkedRig
    ),
    "sentinel": Fault(
        "`kill -9` of the master; Sentinel promotes the replica (`EMBEDQ_REDIS_ACK=replica`)",
        lambda rig: rig.fail_over(),
        SentinelRig,
    ),
}
