"""Ingestions that load into one dataset in any order, and a model that says what it must hold: by order of acceptance.

The model knows nothing of receipts. It has the history of what was committed and replays it in the order in which the
ingestions were accepted, as if each had been alone.
"""

import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.chunk import Chunk
from tasks.datasets.loads import DocumentLoad, DocumentState, LoadOutcome, Stamp, UnreadPart, Verdict
from tasks.datasets.places import Datasets
from tasks.datasets.sqlite.dataset_file import DatasetFile
from tasks.datasets.store import Store
from tasks.datasets.who_wins import StaleError
from tests.dataset_checks import check_whole
from tests.integration.api.ledger_worker import DIMENSION, vector
from tests.simulation.jobs.witness import Witness
from tests.thorough import some

ROOTS = ("r", "r/in", "s")
CONTENTS = (1, 2, 3)
BAD = 0
"""A content that cannot be read."""

Lines = list[DocumentLoad | UnreadPart]


@dataclass
class Job:
    """An ingestion: what it has listed of the source, page by page, and has not loaded yet, or has."""

    stamp: Stamp
    sync: bool
    pages: list[Lines] = field(default_factory=list)
    loaded: list[tuple[Lines, list[LoadOutcome]]] = field(default_factory=list)


class World:
    def __init__(self, rng: random.Random, store: Store, witness: Witness) -> None:
        self.rng, self.store, self.witness = rng, store, witness
        self.source: dict[tuple[str, str], int] = {}
        self.bad: set[str] = set()
        self.jobs: list[Job] = []

    def step(self) -> None:
        """One thing happens, and the dataset holds what the model says."""
        deeds = (self._change, self._spoil, self._begin, self._load, self._repeat, self._finish)
        self.rng.choices(deeds, (4, 1, 2, 9, 2, 3))[0]()
        self.witness.check()

    def _change(self) -> None:
        key = self.rng.choice(ROOTS), f"d{self.rng.randrange(2)}"
        if self.rng.random() < 0.4:
            self.source.pop(key, None)
        else:
            self.source[key] = self.rng.choice((*CONTENTS, BAD))

    def _spoil(self) -> None:
        self.bad ^= {self.rng.choice(ROOTS)}

    def _begin(self) -> None:
        order = max((job.stamp.order for job in self.jobs), default=0) + self.rng.randint(1, 3)
        fingerprint, reloads = self.rng.choice("ab") * 64, self.rng.random() < 0.2
        job = Job(
            Stamp(f"ing_{order:04d}", order, fingerprint, "m", "1", DIMENSION, "m 1", reloads=reloads),
            sync=self.rng.random() < 0.5,
        )
        lines: Lines = []
        for root in ROOTS:
            listed = sorted(key for key in self.source if key[0] == root)
            if root in self.bad:
                lines.append(UnreadPart(root))
            elif listed:
                lines += [
                    self._read(job, f"{root}/{name}", f"{root}:{name}", self.source[root, name]) for _, name in listed
                ]
                if self.rng.random() < 0.2:  # a second document with the id of the first
                    other = self.rng.choice((*CONTENTS, BAD))
                    lines.append(self._read(job, f"{root}/twice", f"{root}:{listed[0][1]}", other))
        size = self.rng.randint(1, 4)
        job.pages = [lines[at : at + size] for at in range(0, len(lines), size)]
        self.witness.roots[job.stamp.ingestion] = [*ROOTS]
        self.jobs.append(job)

    def _read(self, job: Job, place: str, name: str, content: int) -> DocumentLoad:
        if content == BAD:
            return DocumentLoad(name, place, DocumentState.FAILED)
        new, known = new_document(name, place, content), self.store.known([name]).get(name)
        before = (known.content_hash, known.fingerprint) if known else None
        if before == (new.content_hash, job.stamp.fingerprint) and not job.stamp.reloads:
            return DocumentLoad(name, place, DocumentState.UNCHANGED, new.content_hash)
        return new

    def _load(self) -> None:
        jobs = [job for job in self.jobs if job.pages]
        if not jobs:
            return
        job = self.rng.choice(jobs)
        page = job.pages[0]
        try:
            outcomes = [*self.store.load(page, job.stamp, lambda: None)]
        except StaleError:
            job.pages[0] = [self._read_again(line) for line in page]
            return
        job.loaded.append((job.pages.pop(0), outcomes))
        self.witness.loaded(job.stamp, page, outcomes)

    def _read_again(self, line: DocumentLoad | UnreadPart) -> DocumentLoad | UnreadPart:
        if isinstance(line, UnreadPart) or line.state is not DocumentState.UNCHANGED:
            return line
        found = (new_document(line.id, line.place, content) for content in CONTENTS)
        return next(each for each in found if each.content_hash == line.content_hash)

    def _repeat(self) -> None:
        """A load whose answer was lost is done once more."""
        done = [(job, page, outcomes) for job in self.jobs for page, outcomes in job.loaded]
        if not done:
            return
        job, page, outcomes = self.rng.choice(done)
        try:
            again = self.store.load(page, job.stamp, lambda: None)
        except StaleError:  # a later ingestion has replaced it meanwhile, and this one's answer was no lie
            return
        for line, before, after in zip(page, outcomes, again, strict=True):
            # A later ingestion may have come in between: it has decided the document, or hides the first place.
            undecided = {Verdict.DUPLICATE, Verdict.FAILED}
            same = isinstance(line, UnreadPart) or after.verdict in {before.verdict, Verdict.SUPERSEDED}
            assert same or before.verdict in undecided, (before, after)
        self.witness.loaded(job.stamp, page, again)

    def _finish(self) -> None:
        jobs = [job for job in self.jobs if job.sync and not job.pages]
        if jobs:
            stamp = self.rng.choice(jobs).stamp
            self.witness.finishing(stamp)
            self.witness.finished(stamp, ROOTS, self.store.finish(stamp, ROOTS, lambda: None))


def new_document(name: str, place: str, content: int) -> DocumentLoad:
    text = f"{name} {content}"
    digest = sha256(text.encode()).digest()
    chunks = [Chunk(n, f"{text} {n}", 10 * n, 10 * n + 5, None, (), 3) for n in range(digest[0] % 4)]
    vectors = np.array([vector(chunk.text) for chunk in chunks], np.float32).reshape(len(chunks), DIMENSION)
    return DocumentLoad(name, place, DocumentState.NEW, digest.hex(), "", {"n": content}, chunks, vectors)


@pytest.mark.parametrize("seed", some(range(12), 0, 1))
def test_a_dataset_holds_what_the_ingestions_say_in_the_order_of_their_acceptance(
    datasets: Datasets, tmp_path: Path, seed: int
) -> None:
    of_any_kind: Any = datasets
    rng = random.Random(seed)  # noqa: S311 - repeatable
    with closing(datasets.store("me", "docs")) as store:
        world = World(rng, store, Witness(of_any_kind, "me", "docs"))
        for _ in range(80):
            world.step()
    path = DatasetFile(tmp_path, "me", "docs").path()
    if path is not None:
        with closing(sqlite3.connect(path)) as db:
            check_whole(db)
