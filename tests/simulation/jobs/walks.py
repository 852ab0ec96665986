"""Random walks through a world of jobs. At the end of each all faults end, every job ends, and leaves nothing."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.documents import Document
from tests.integration.api.ledger_worker import vector
from tests.integration.batches.hands import MODEL
from tests.simulation.jobs.world import CODES, FILES, MINUTE_MS, QUEUES, WORKERS, JobSeen, JobWorld, jobs_world

CONTENTS = (
    b"alpha one",
    b"beta two",
    b"gamma three",
    b"delta " * 40,
    b"epsilon " * 25,
    b"zeta six",
    b"eta " * 60,
    b"theta eight",
    b"",
    b"  \n",
    b"\x00\x01\xff\xfe\x00\x80",
    b"sick text",
)
WEIGHTS: Mapping[str, float] = {
    "begin": 3, "batch": 0.8, "change": 4, "cancel": 0.6, "retry": 2, "delete": 0.6, "work": 60, "step": 25,
    "die": 1, "die_in": 2, "driver_dies": 1, "hang": 1, "zombie": 1.2, "sink": 0.4, "lose_answer": 0.5,
    "storage": 0.4, "root": 0.4, "sick": 0.4, "serve": 0.2, "heal": 3, "tick": 4, "clock": 0.4, "lose": 0.4,
    "save": 0.6, "back": 0.25, "sweep": 0.8, "rest": 0.6,
}  # fmt: skip
MODES: tuple[Mapping[str, float], ...] = (
    {},
    {"sink": 2, "lose_answer": 2, "storage": 2, "die": 2, "die_in": 5, "driver_dies": 3, "hang": 2, "heal": 6},
    {"save": 3, "back": 2, "lose": 1.5, "delete": 2, "retry": 3, "sweep": 4},
    {"begin": 5, "batch": 3, "cancel": 2, "retry": 3, "delete": 1, "change": 6},
    {"begin": 6, "change": 8, "hang": 2, "zombie": 2},
)
"""What a walk has more of than others."""


def _begin(world: JobWorld, g: random.Random) -> None:
    if len(world.open_jobs()) < 4 and not world.faults.storage_away:
        mode = g.choice(["skip_unchanged", "skip_unchanged", "upsert", "sync"])
        world.ingest(mode, dry=g.random() < 0.12, roots=g.choice(["ab", "ab", "a", "b", ""]))


def _batch(world: JobWorld, g: random.Random) -> None:
    if len(world.open_jobs()) < 4 and not world.faults.storage_away:
        world.batch(g.choice([5_000, 60_000, 10**8, 10**8]))


def _change(world: JobWorld, g: random.Random) -> None:
    content = b"kill text" if g.random() < 0.05 else g.choice(CONTENTS)
    world.change(*g.choice(FILES), None if g.random() < 0.25 else content)


def _client(what: str) -> Callable[[JobWorld, random.Random], None]:
    def do(world: JobWorld, g: random.Random) -> None:
        jobs = world.open_jobs()
        if what != "cancel":
            jobs = [job for job in world.jobs if job not in jobs]
        if jobs:
            world.client(what, g.choice(jobs[-4:]))

    return do


def _work(world: JobWorld, g: random.Random) -> None:
    worker = g.choice(WORKERS)
    for _ in range(g.choice([1, 2, 3, 3, 6])):
        world.work(worker, g.choice(QUEUES))


def _heal(world: JobWorld, _: random.Random) -> None:
    world.faults.sink_away = world.faults.storage_away = False
    world.serve(on=True)
    world.mend_roots()


def _clock(world: JobWorld, g: random.Random) -> None:
    world.tick(g.choice([-3000, -200, 1500, 3000]))


def _turned(name: str) -> Callable[[JobWorld, random.Random], None]:
    def do(world: JobWorld, _: random.Random) -> None:
        setattr(world.faults, name, not getattr(world.faults, name))

    return do


def _sick(world: JobWorld, _: random.Random) -> None:
    world.sick = not world.sick


DEEDS: Mapping[str, Callable[[JobWorld, random.Random], object]] = {
    "begin": _begin,
    "batch": _batch,
    "change": _change,
    **{what: _client(what) for what in ("cancel", "retry", "delete")},
    "work": _work,
    "step": lambda world, _: world.step(),
    "die": lambda world, g: world.die(g.choice(WORKERS)),
    "die_in": lambda world, g: world.work(g.choice(WORKERS), g.choice(QUEUES), g.randrange(25)),
    "driver_dies": lambda world, g: world.step(g.randrange(12)),
    "hang": lambda world, g: world.hang(g.choice(WORKERS)),
    "zombie": lambda world, _: world.zombie(),
    "sink": _turned("sink_away"),
    "lose_answer": _turned("sink_loses"),
    "storage": _turned("storage_away"),
    "root": lambda world, g: world.break_root(g.choice("ab")),
    "sick": _sick,
    "serve": lambda world, _: world.serve(on=not world.served),
    "heal": _heal,
    "tick": lambda world, g: world.tick(g.choice([1, 50, 500, 1000, 2000, 4000, 16_000, 61_000])),
    "clock": _clock,
    "lose": lambda world, _: world.lose(),
    "save": lambda world, _: world.save(),
    "back": lambda world, _: world.go_back(),
    "sweep": lambda world, _: world.sweep(),
    "rest": lambda world, _: world.rest(),
}


def walk(client: Any, seed: int, steps: int) -> Counter[str]:
    """One walk; what happened in it, and how often. Raises AssertionError where something is not as it must be."""
    g = random.Random(seed)  # noqa: S311 - repeatable
    weights, happened = {**WEIGHTS, **MODES[seed % len(MODES)]}, Counter[str]()
    with jobs_world(g, client) as world:
        deeds = g.choices(list(weights), list(weights.values()), k=steps)
        try:
            for _ in range(g.randrange(3, 8)):
                world.change(*g.choice(FILES), g.choice(CONTENTS))
            for deed in deeds:
                happened[deed] += 1
                DEEDS[deed](world, g)
                world.check()
            settle(world)
        except BaseException as error:
            error.add_note(f"seed {seed}, deeds {' '.join(deeds[: happened.total()][-15:])}")
            raise
    return happened + Counter(world.witness.verdicts)


# ---- the end

_ROUNDS = 200


def settle(world: JobWorld) -> None:
    """All faults end, and so does every job."""
    _end_faults(world)
    for _ in range(_ROUNDS):
        world.tick(2000)
        world.sweep()
        world.rest()
        _work_off(world)
        world.check()
        if not world.open_jobs():
            break
    left = {job: (world.engine.status(job), world.engine.waits(job)) for job in world.open_jobs()}
    assert not left, f"these do not end: {left}"
    for job, seen in world.jobs.items():
        status = world.engine.status(job)
        if status:
            (check_batch if seen.batch else check_ingestion)(world, job, status)
    while world.zombies:
        world.zombie()
        world.check()
    _remove(world)


def _end_faults(world: JobWorld) -> None:
    _heal(world, world.rng)
    world.faults.sink_loses = world.sick = False
    for worker in WORKERS:
        world.die(worker)


def _work_off(world: JobWorld) -> None:
    for queue in (DOCUMENTS, MODEL):
        for _ in range(30):
            if not world.work(WORKERS[0], queue):
                break
        while WORKERS[0] in world.held:
            world.work(WORKERS[0], queue)


def _remove(world: JobWorld) -> None:
    """After deletion and sweep nothing is there but what a Redis that went back had taken from its record."""
    for _ in range(3):
        world.step()
        world.tick(MINUTE_MS)
        world.sweep()
    world.check()
    for job in world.jobs:
        status = world.engine.status(job)
        assert not status or world.engine.ask("delete", job), f"{job} {status} is not deleted"
    for _ in range(3):
        world.step()
        world.tick(MINUTE_MS)
        world.sweep()
    assert not world.engine.open_tasks(), f"tasks are left: {world.engine.open_tasks()}"
    assert not [job for job in world.jobs if world.engine.status(job)], "records are left"
    lost = [job for job, seen in world.jobs.items() if seen.forgotten]
    objects = world.engine.objects()
    left = [name for name in objects if name not in world.orphans and not any(job in name for job in lost)]
    assert not left, f"objects are left: {left}"
    assert not world.engine.unexplained(), "bytes are left in the account"


def check_ingestion(world: JobWorld, job: str, status: str) -> None:
    """What it says is what it has done."""
    seen, counts, documents = world.jobs[job], world.engine.counts(job), world.engine.told(job)
    found = Counter(str(document.status) for document in documents)
    sums = {name: counts[name] for name in ("unchanged", "failed")}
    assert sums == {name: found[name] for name in sums}, f"{job} {status}: {counts}, documents {found}"
    assert counts["loaded"] == found["loaded"] + found["counted"], f"{job} {status}: {counts}, documents {found}"
    said, stored = world.engine.kept(job)
    assert said == stored, f"{job} {status}: {stored} bytes are kept, and {said} in the account"
    ended = sum(counts[name] for name in ("loaded", "unchanged", "failed", "cancelled"))
    if status != "failed":
        assert counts["documents"] == ended, f"{job} {status}: {counts}"
    unknown = {document.code for document in documents if document.code} - CODES
    assert not unknown, f"{job}: {unknown}"
    _check_said(world, job, documents)
    if status != "completed":
        return
    assert counts["documents"] == len(documents), f"{job}: {counts}, {len(documents)} documents"
    if not seen.retried:
        missing = seen.must - {document.uri for document in documents}
        assert not missing, f"{job}: {missing} is not in its list"
    if seen.mode == "sync" and not seen.dry:
        assert counts["deleted"] == world.witness.jobs[job].deleted, f"{job}: {counts}"


def _check_said(world: JobWorld, job: str, documents: Sequence[Document]) -> None:
    """It has loaded no more than it says, and what it says is true."""
    if world.jobs[job].dry:
        return
    said = world.witness.said(job)
    if not world.jobs[job].doubtful:
        missing = {name for name, content in said.items() if content} - {document.id for document in documents}
        assert not missing, f"{job} has decided {missing}, and does not say so"
    for document in documents:
        if document.status in {"loaded", "unchanged"} and document.code != "superseded":
            assert said.get(document.id), f"{job} says {document}, and the dataset never heard of it"


def check_batch(world: JobWorld, job: str, status: str) -> None:
    """Its rows are in its files, once and in order."""
    seen: JobSeen = world.jobs[job]
    batch = world.engine.found(job)
    output, errors = (world.engine.lines(file) for file in (batch.output_file_id, batch.error_file_id))
    for lines in (output, errors):
        order = [seen.texts.index(line["custom_id"]) for line in lines]
        assert order == sorted(set(order)), f"{job}: rows {order}"
    good = {line["custom_id"] for line in output}
    bad = {line["custom_id"] for line in errors}
    assert not good & bad, f"{job}: {good & bad} are in both files"
    if status == "failed":
        return
    if status == "completed":
        assert good | bad == set(seen.texts), f"{job}: {set(seen.texts) - good - bad} are in no file"
        assert all(not text.startswith("row") for text in bad) or seen.doubtful, f"{job}: {bad} failed"
    if not seen.doubtful:
        assert seen.rows <= good, f"{job} {status}: {seen.rows - good} were embedded, and are not in the output"
    for line in output:
        [row] = line["response"]["body"]["data"]
        right = vector(line["custom_id"])
        assert np.array_equal(np.float32(row["embedding"]), right), f"{job}: vector of {line['custom_id']}"
