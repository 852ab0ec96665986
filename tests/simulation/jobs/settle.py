"""The end of a walk: all faults end, every job ends, says what it has done, and leaves nothing."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.documents import Document
from tests.integration.api.ledger_worker import vector
from tests.integration.batches.hands import MODEL
from tests.simulation.jobs.world import CODES, MINUTE_MS, WORKERS, JobSeen, JobWorld

_ROUNDS = 200


def settle(world: JobWorld) -> None:
    """See the module."""
    _heal(world)
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


def _heal(world: JobWorld) -> None:
    world.faults.sink_away = world.faults.sink_loses = world.faults.storage_away = world.sick = False
    world.serve(on=True)
    world.mend_roots()
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
