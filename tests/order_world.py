"""Ingestions that load into one dataset in any order, and a model that says what it must hold: by order of acceptance.

The model knows nothing of receipts. It has the history of what was committed and replays it in the order in which the
ingestions were accepted, as if each had been alone.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol, TypeAlias

import numpy as np

from tasks.chunk import Chunk
from tasks.datasets.loads import DocumentLoad, DocumentState, Finished, LoadOutcome, Receipt, Stamp, UnreadPart, Verdict
from tasks.datasets.who_wins import StaleError, holds

DIMENSION = 4
ROOTS = ("r", "r/in", "s")
_CONTENTS = (1, 2, 3)
_BAD = 0
"""A content that cannot be read."""


Content: TypeAlias = tuple[str, str]
"""Content hash and fingerprint."""


class Loads(Protocol):
    """As much of `Store` as a walk needs."""

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]: ...
    def load(
        self, documents: Sequence[DocumentLoad | UnreadPart], by: Stamp, progress: Callable[[], None]
    ) -> Sequence[LoadOutcome]: ...
    def finish(self, by: Stamp, roots: Sequence[str], progress: Callable[[], None]) -> Finished: ...


@dataclass
class Job:
    """An ingestion: what it has listed of the source, page by page, and what is left to load."""

    stamp: Stamp
    sync: bool
    pages: list[list[DocumentLoad | UnreadPart]] = field(default_factory=list)
    loaded: list[tuple[list[DocumentLoad | UnreadPart], Sequence[LoadOutcome]]] = field(default_factory=list)
    decided: dict[str, Content | None] = field(default_factory=dict)
    """Of its documents, the first place of each: None where it failed."""
    places: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    """Parts that it could not list."""
    finished: bool = False
    deleted: int | None = None
    spared: set[str] = field(default_factory=set)
    """Documents that a later ingestion had listed before the end of this one."""
    spared_parts: set[str] = field(default_factory=set)
    """Likewise of parts that it could not list, and this one's own."""

    @property
    def order(self) -> int:
        return self.stamp.order


def content_of(text: str) -> tuple[str, list[Chunk], np.ndarray]:
    """Hash, chunks and vectors that follow from a text."""
    digest = sha256(text.encode()).digest()
    chunks = [Chunk(n, f"{text} {n}", 10 * n, 10 * n + 5, None, (), 3) for n in range(digest[0] % 4)]
    vectors = np.random.default_rng(digest[1]).standard_normal((len(chunks), DIMENSION)).astype(np.float32)
    return digest.hex(), chunks, vectors


class World:
    """A source, its ingestions, and the dataset. `contents`: what a reader sees of each document."""

    def __init__(self, rng: random.Random, store: Loads, contents: Callable[[], dict[str, Content]]) -> None:
        self.rng, self.store, self.contents = rng, store, contents
        self.source: dict[tuple[str, str], int] = {}
        self.bad: set[str] = set()
        self.jobs: list[Job] = []
        self.stats: Counter[str] = Counter()

    def step(self) -> None:
        """One thing happens, and the dataset holds what the model says."""
        act = self.rng.choices(
            (self._change, self._spoil, self._begin, self._load, self._repeat, self._finish), (4, 1, 2, 9, 2, 3)
        )[0]
        self.stats[act.__name__] += 1
        act()
        assert self.contents() == self.expected()

    # ---- what happens

    def _change(self) -> None:
        key = self.rng.choice(ROOTS), f"d{self.rng.randrange(2)}"
        if self.rng.random() < 0.4:
            self.source.pop(key, None)
        else:
            self.source[key] = self.rng.choice((*_CONTENTS, _BAD))

    def _spoil(self) -> None:
        self.bad ^= {self.rng.choice(ROOTS)}

    def _begin(self) -> None:
        order = max((job.order for job in self.jobs), default=0) + self.rng.randint(1, 3)
        stamp = Stamp(
            *(f"ing_{order:04d}", order, self.rng.choice("ab") * 64, "m", "1", DIMENSION, "m 1"),
            reloads=self.rng.random() < 0.2,
        )
        job = Job(stamp, sync=self.rng.random() < 0.5)
        lines: list[DocumentLoad | UnreadPart] = []
        for root in ROOTS:
            listed = sorted(key for key in self.source if key[0] == root)
            if root in self.bad:
                lines.append(UnreadPart(root))
            elif listed:
                lines += [
                    self._read(job, f"{root}/{name}", f"{root}:{name}", self.source[root, name]) for _, name in listed
                ]
                if self.rng.random() < 0.2:  # a second document with the id of the first
                    other = self.rng.choice((*_CONTENTS, _BAD))
                    lines.append(self._read(job, f"{root}/twice", f"{root}:{listed[0][1]}", other))
        size = self.rng.randint(1, 4)
        job.pages = [lines[at : at + size] for at in range(0, len(lines), size)]
        self.jobs.append(job)

    def _read(self, job: Job, place: str, name: str, content: int) -> DocumentLoad:
        if content == _BAD:
            return DocumentLoad(name, place, DocumentState.FAILED)
        hashed, chunks, vectors = content_of(f"{name} {content}")
        known = self.store.known([name]).get(name)
        before = (known.content_hash, known.fingerprint) if known else None
        if before == (hashed, job.stamp.fingerprint) and not job.stamp.reloads:
            return DocumentLoad(name, place, DocumentState.UNCHANGED, hashed)
        return DocumentLoad(name, place, DocumentState.NEW, hashed, "", {"n": content}, chunks, vectors)

    def _load(self) -> None:
        jobs = [job for job in self.jobs if job.pages]
        if not jobs:
            return
        job = self.rng.choice(jobs)
        page = job.pages[0]
        try:
            outcomes = self.store.load(page, job.stamp, lambda: None)
        except StaleError:
            self.stats["stale"] += 1
            job.pages[0] = [self._read_again(line) for line in page]
            return
        job.pages.pop(0)
        job.loaded.append((page, outcomes))
        for line, outcome in zip(page, outcomes, strict=True):
            self._note(job, line, outcome)
            self.stats[outcome.verdict] += 1

    def _read_again(self, line: DocumentLoad | UnreadPart) -> DocumentLoad | UnreadPart:
        if not isinstance(line, DocumentLoad) or line.state is not DocumentState.UNCHANGED:
            return line
        content = next(n for n in _CONTENTS if content_of(f"{line.id} {n}")[0] == line.content_hash)
        _, chunks, vectors = content_of(f"{line.id} {content}")
        return line._replace(state=DocumentState.NEW, chunks=chunks, vectors=vectors, metadata={"n": content})

    def _repeat(self) -> None:
        """A load whose answer was lost is done once more."""
        job = self.rng.choice(self.jobs) if self.jobs else None
        if job is None or not job.loaded:
            return
        page, outcomes = self.rng.choice(job.loaded)
        try:
            again = self.store.load(page, job.stamp, lambda: None)
        except StaleError:  # a later ingestion has replaced it meanwhile, and this one's answer was no lie
            return
        for line, before, after in zip(page, outcomes, again, strict=True):
            if isinstance(line, UnreadPart) or after.verdict is before.verdict:
                continue
            # A later ingestion has come in between: it has decided the document, or its trace hides the first place.
            failed = {Verdict.DUPLICATE, Verdict.FAILED}
            assert after.verdict is Verdict.SUPERSEDED or before.verdict in failed, (before, after)
            self._note(job, line, after)

    def _finish(self) -> None:
        jobs = [job for job in self.jobs if job.sync and not job.pages]
        if not jobs:
            return
        job = self.rng.choice(jobs)
        before = len(self.contents())
        if not job.finished:
            since = [other for other in self.jobs if other.order >= job.order]
            job.spared = {name for other in since for name in other.places}
            job.spared_parts = {part for other in since for part in other.unread}
        missed = self._missed(job)
        deleted, empty = self.store.finish(job.stamp, ROOTS, lambda: None)
        assert job.deleted in {None, deleted}, "a repetition says the same"
        if job.finished:
            assert len(self.contents()) == before
        else:
            assert missed <= set(empty)
            hidden = {name for other in self.jobs if other.order > job.order for name in other.places}
            seen = [place for name, place in job.places.items() if name not in hidden and name in self.contents()]
            assert not any(holds(root, place) for root in empty for place in seen)
            job.unread |= set(empty)
            job.spared_parts |= set(empty)
        job.finished, job.deleted = True, deleted

    # ---- the model

    def _missed(self, job: Job) -> set[str]:
        """Roots of which there is content, and the ingestion has listed nothing."""
        there = [name.replace(":", "/") for name in self.contents()]
        listed = job.places.values()
        return {
            root
            for root in ROOTS
            if any(holds(root, place) for place in there) and not any(holds(root, place) for place in listed)
        }

    def _note(self, job: Job, line: DocumentLoad | UnreadPart, outcome: LoadOutcome) -> None:
        if isinstance(line, UnreadPart):
            job.unread.add(line.part)
            return
        # Of an ingestion whose trace a later one has replaced, nobody can say what it has listed.
        hidden = any(line.id in other.places or other.finished for other in self.jobs if other.order > job.order)
        first = job.places.setdefault(line.id, line.place) == line.place
        decides = outcome.verdict in {Verdict.LOADED, Verdict.REPLACED, Verdict.UNCHANGED}
        assert first or hidden or outcome.verdict is Verdict.DUPLICATE, "the first document with an id counts"
        assert not (first and line.state is DocumentState.FAILED) or outcome.verdict in {
            Verdict.FAILED,
            Verdict.DUPLICATE,
        }
        assert (
            not (decides and line.state is DocumentState.NEW and job.stamp.reloads)
            or outcome.verdict is not Verdict.UNCHANGED
        )
        # A second document counts where the first one failed and a later ingestion's trace hides that.
        if line.id not in job.decided or (decides and job.decided[line.id] is None):
            content = (line.content_hash, job.stamp.fingerprint)
            job.decided[line.id] = None if line.state is DocumentState.FAILED else content

    def expected(self) -> dict[str, Content]:
        """Content of each document, by the ingestions in the order in which they were accepted."""
        there: dict[str, Content] = {}
        for job in sorted(self.jobs, key=lambda job: job.order):
            there |= {name: content for name, content in job.decided.items() if content is not None}
            if job.finished:
                for name in list(there):
                    place = name.replace(":", "/")
                    if name not in job.spared and not any(place.startswith(f"{part}/") for part in job.spared_parts):
                        del there[name]
        return there


def walk(seed: int, store: Loads, contents: Callable[[], dict[str, Content]], steps: int) -> Counter[str]:
    """A walk of so many steps; what happened in it."""
    world = World(random.Random(seed), store, contents)  # noqa: S311 - repeatable
    for _ in range(steps):
        world.step()
    return world.stats
