"""What a dataset must hold, by a model that knows what was committed and the order in which ingestions were accepted.

It replays what was committed as if each ingestion had been alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from tasks.datasets.contents import DatasetGone
from tasks.datasets.loads import DocumentLoad, DocumentState, Finished, LoadOutcome, Stamp, UnreadPart, Verdict
from tasks.datasets.sqlite.datasets import SqliteDatasets
from tasks.datasets.who_wins import holds
from tests.integration.api.ledger_worker import vector

_DECIDES = {Verdict.LOADED, Verdict.REPLACED, Verdict.UNCHANGED}


@dataclass
class Loader:
    """What an ingestion has done to the dataset."""

    order: int
    decided: dict[str, str | None] = field(default_factory=dict)
    """Content hash of each document; None where it failed."""
    places: dict[str, str] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    deleted: int | None = None
    """None: it has not come to its end."""
    spared: set[str] = field(default_factory=set)
    spared_parts: set[str] = field(default_factory=set)


class Witness:
    """Watches one dataset. `brought`: what the load under way has put in: ingestion and place."""

    def __init__(self, datasets: SqliteDatasets, owner: str, name: str) -> None:
        self._datasets, self._owner, self._name = datasets, owner, name
        self.jobs: dict[str, Loader] = {}
        self.dry: set[str] = set()
        self.roots: dict[str, list[str]] = {}
        """Of ingestions, the places of the source that each is expected to list."""
        self.missed: set[str] = set()
        self.brought: list[tuple[str, str]] = []
        self.writes = Counter[tuple[str, str]]()
        self.texts: dict[str, list[str]] = {}
        self.verdicts = Counter[str]()
        self.changed = False

    # ---- what was committed

    def loaded(self, by: Stamp, lines: Sequence[DocumentLoad | UnreadPart], outcomes: Sequence[LoadOutcome]) -> None:
        """A load of an ingestion."""
        job = self._job(by)
        self.writes.update(self.brought)
        assert all(self.writes[each] == 1 for each in self.brought), f"loaded twice: {self.brought}"
        self.brought.clear()
        for line, outcome in zip(lines, outcomes, strict=True):
            self.verdicts[outcome.verdict] += 1
            if isinstance(line, UnreadPart):
                job.unread.add(line.part)
            else:
                self._note(job, line, outcome)

    def finishing(self, by: Stamp) -> None:
        """The end of a `sync` begins: who has listed what by now."""
        job = self._job(by)
        if job.deleted is None:
            since = [other for other in self.jobs.values() if other.order >= job.order]
            job.spared = {name for other in since for name in other.places}
            job.spared_parts = {part for other in since for part in other.unread}
        there, listed = self.places_of_content(), job.places.values()
        self.missed = {
            root
            for root in self.roots.get(by.ingestion, ())
            if any(holds(root, place) for place in there) and not any(holds(root, place) for place in listed)
        } - job.unread

    def finished(self, by: Stamp, roots: Sequence[str], finished: Finished) -> None:
        """It has come to this."""
        job = self._job(by)
        assert job.deleted in {None, finished.deleted}, "a repetition says the same"
        assert set(finished.empty) <= set(roots)
        assert job.deleted is not None or self.missed <= set(finished.empty), f"not kept: {self.missed}"
        job.unread |= set(finished.empty)
        job.spared_parts |= set(finished.empty)
        job.deleted = finished.deleted

    def _job(self, by: Stamp) -> Loader:
        assert by.ingestion not in self.dry, "a dry run has changed the dataset"
        self.changed = True
        job = self.jobs.setdefault(by.ingestion, Loader(by.order))
        assert job.order == by.order, f"{by.ingestion} has another order than before"
        assert sum(other.order == by.order for other in self.jobs.values()) == 1, "two ingestions of one order"
        return job

    def _note(self, job: Loader, line: DocumentLoad, outcome: LoadOutcome) -> None:
        newer = [other for other in self.jobs.values() if other.order > job.order]
        hidden = any(line.id in other.places or other.deleted is not None for other in newer)
        first = job.places.setdefault(line.id, line.place) == line.place
        assert first or hidden or outcome.verdict is Verdict.DUPLICATE, f"not the first place: {line.place}"
        if line.state is DocumentState.NEW:
            texts = [chunk.text for chunk in line.chunks]
            assert self.texts.setdefault(line.content_hash, texts) == texts, "one content is cut in two ways"
        decides = outcome.verdict in _DECIDES
        if decides and job.deleted is not None:  # Redis went back, and it lists the source of now
            job.spared.add(line.id)
        if line.id not in job.decided or (decides and job.decided[line.id] is None):
            job.decided[line.id] = None if line.state is DocumentState.FAILED else line.content_hash

    # ---- what is there

    def check(self) -> None:
        """The dataset holds what the model says, if anything was committed since the last look."""
        if not self.changed:
            return
        self.changed = False
        right = {name: content for name, content in self.expected().items() if self.texts[content]}
        there = self.contents()
        assert there == right, f"there is {there}, right is {right}"

    def contents(self) -> dict[str, str]:
        """Documents with chunks, by id, with their content; all chunks and vectors are right."""
        found: dict[str, list[str]] = {}
        hashes: dict[str, str] = {}
        with closing(self._datasets.contents(self._owner, self._name)) as contents:
            try:
                parts = [contents.export_rows(part) for part in contents.export_parts()]
            except DatasetGone:
                return {}
        for row in (row for part in parts if part for row in part.rows):
            found.setdefault(row.doc_id, []).append(row.text)
            assert hashes.setdefault(row.doc_id, row.content_hash) == row.content_hash, "a mixture of two versions"
            assert np.array_equal(np.frombuffer(row.embedding, "<f4"), vector(row.text)), f"vector of {row.text}"
        for name, texts in found.items():
            assert texts == self.texts[hashes[name]], f"chunks of {name}: {texts}"
        return hashes

    def places_of_content(self) -> list[str]:
        """Where each document that has content was listed last."""
        places = {name: place for job in self._in_order() for name, place in job.places.items()}
        return [places[name] for name in self.expected()]

    def _in_order(self) -> list[Loader]:
        return sorted(self.jobs.values(), key=lambda job: job.order)

    def expected(self) -> dict[str, str]:
        """Content of each document."""
        there: dict[str, str] = {}
        places: dict[str, str] = {}
        for job in self._in_order():
            places |= job.places
            there |= {name: content for name, content in job.decided.items() if content is not None}
            if job.deleted is not None:
                gone = [name for name in there if name not in job.spared and not _held(job.spared_parts, places[name])]
                for name in gone:
                    del there[name]
        return there

    def said(self, job: str) -> Mapping[str, str | None]:
        """What an ingestion has decided."""
        return self.jobs[job].decided if job in self.jobs else {}


def _held(parts: Iterable[str], place: str) -> bool:
    return any(holds(part, place) for part in parts)
