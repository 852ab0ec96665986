"""Of two ingestions the one that was accepted later decides, whenever each of them comes to a document."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tasks.datasets.loads import (
    EVERYTHING,
    DocumentLoad,
    DocumentState,
    Finished,
    LoadOutcome,
    Receipt,
    Stamp,
    UnreadPart,
    Verdict,
)
from tasks.datasets.who_wins import Floors, SilentRoots, StaleError, Unread, decide, is_deleted
from tests.order_world import Content, content_of, walk


class DictStore:
    """A dataset in a dict, as both stores do it."""

    def __init__(self) -> None:
        self.receipts: dict[str, Receipt] = {}
        self.unread: dict[str, Unread] = {}
        self.synced = 0
        self.deleted: dict[str, Finished] = {}

    def known(self, document_ids: Sequence[str]) -> dict[str, Receipt]:
        return {name: self.receipts[name] for name in document_ids if name in self.receipts}

    def load(
        self,
        documents: Sequence[DocumentLoad | UnreadPart],
        by: Stamp,
        progress: Callable[[], None],  # noqa: ARG002
    ) -> Sequence[LoadOutcome]:
        before = copy.copy(self.receipts), copy.copy(self.unread)
        outcomes = []
        for line in documents:
            floors = Floors(self.synced, self.unread.values())
            if isinstance(line, UnreadPart):
                outcomes.append(self._part(line, by, floors))
                continue
            receipt, floor = self.receipts.get(line.id), floors.of(line.place)
            try:
                _, after, outcome = decide(line, receipt, by, floor)
            except StaleError:
                self.receipts, self.unread = before
                raise
            if after is not None:
                self.receipts[line.id] = after
            outcomes.append(outcome)
        return outcomes

    def _part(self, line: UnreadPart, by: Stamp, floors: Floors) -> LoadOutcome:
        there = self.unread.get(line.part)
        if there is None or there.listed < by.order:
            self.unread[line.part] = Unread(line.part, by.order, floors.of(line.part))
        return LoadOutcome(Verdict.FAILED)

    def finish(self, by: Stamp, roots: Sequence[str], progress: Callable[[], None]) -> Finished:  # noqa: ARG002
        if by.ingestion not in self.deleted:
            silent, receipts = SilentRoots(roots), self.receipts.values()
            silent.listed(r.place for r in receipts if r.listed_by == by.ingestion)
            silent.known(r.place for r in receipts if r.content_hash)
            self.load([UnreadPart(root) for root in silent.missed], by, lambda: None)
            doomed = [r for r in receipts if is_deleted(r, by.order, self.unread.values())]
            for receipt in doomed:
                del self.receipts[receipt.document_id]
            self.synced = max(self.synced, by.order)
            self.deleted[by.ingestion] = Finished(sum(bool(receipt.content_hash) for receipt in doomed), silent.missed)
        return self.deleted[by.ingestion]

    def contents(self) -> dict[str, Content]:
        return {name: (r.content_hash, r.fingerprint) for name, r in self.receipts.items() if r.content_hash}


@pytest.mark.parametrize("seed", range(40))
def test_a_dataset_holds_what_the_ingestions_say_in_the_order_of_their_acceptance(seed: int) -> None:
    store = DictStore()
    walk(seed, store, store.contents, 120)


def failed(name: str, place: str) -> DocumentLoad:
    return DocumentLoad(name, place, DocumentState.FAILED)


def stamp(order: int) -> Stamp:
    return Stamp(f"ing_{order}", order, "f", "m", "1", 4, "m 1")


def load(store: DictStore, order: int, *lines: DocumentLoad | UnreadPart) -> list[Verdict]:
    return [outcome.verdict for outcome in store.load(lines, stamp(order), lambda: None)]


def new(name: str, place: str, content: str = "x") -> DocumentLoad:
    return DocumentLoad(name, place, DocumentState.NEW, content)


def test_a_folder_that_a_sync_has_spared_stays_spared_when_all_above_it_cannot_be_listed() -> None:
    store = DictStore()
    load(store, 12, UnreadPart("r/in"))
    store.finish(stamp(10), (), lambda: None)
    load(store, 13, UnreadPart("r"))
    assert load(store, 9, new("a", "r/in/a"), new("b", "r/b")) == [Verdict.LOADED, Verdict.SUPERSEDED]


def test_a_document_belongs_to_the_place_where_it_was_listed_last() -> None:
    store = DictStore()
    load(store, 1, new("a", "r/a"), new("b", "r/b"))
    load(store, 2, failed("a", "s/a"))
    load(store, 3, UnreadPart("s"))
    assert store.finish(stamp(3), (), lambda: None) == Finished(1, [])
    assert store.contents().keys() == {"a"}


def test_a_second_document_is_a_duplicate_also_when_a_later_ingestion_has_listed_the_first() -> None:
    store = DictStore()
    load(store, 1, new("a", "r/a"))
    load(store, 2, failed("a", "r/a"))
    assert load(store, 1, new("a", "r/twice", "y")) == [Verdict.DUPLICATE]


def test_of_two_ingestions_with_one_order_the_second_one_loads() -> None:
    store = DictStore()
    load(store, 1, new("a", "r/a"))
    other = Stamp("ing_other", 1, "f", "m", "1", 4, "m 1")
    assert store.load([new("a", "r/a", "y")], other, lambda: None)[0].verdict is Verdict.LOADED


def test_a_part_that_may_be_anywhere_keeps_everything() -> None:
    store = DictStore()
    load(store, 1, new("a", "file:1/a.jsonl#1"), new("b", "inline:b"))
    load(store, 2, new("c", "file:2/a.jsonl#1"), UnreadPart(EVERYTHING))
    assert store.finish(stamp(2), (), lambda: None).deleted == 0
    assert store.contents().keys() == {"a", "b", "c"}


@pytest.mark.parametrize(("reloads", "content", "verdict"), [
    (False, "x", Verdict.UNCHANGED), (True, "x", Verdict.CONFLICT), (False, "y", Verdict.CONFLICT),
])  # fmt: skip
def test_the_same_content_of_another_file_is_unchanged_and_a_conflict_names_its_place(
    content: str, verdict: Verdict, *, reloads: bool
) -> None:
    store = DictStore()
    first = new("a", "monday.csv#1")._replace(chunks=content_of("a")[1], origin="monday.csv")
    store.load([first], stamp(1), lambda: None)
    by = replace(stamp(2), replaces_others=False, reloads=reloads)
    (outcome,) = store.load([new("a", "tuesday.csv#1", content)._replace(origin="tuesday.csv")], by, lambda: None)
    assert outcome.verdict is verdict
    assert outcome.other == ("" if verdict is Verdict.UNCHANGED else "monday.csv#1")
