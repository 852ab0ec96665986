"""What every store of datasets does, over all of them."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tasks.datasets.loads import EVERYTHING, DocumentLoad, LoadOutcome, Receipt, UnreadPart, Verdict
from tasks.datasets.store import Store, chunk_id
from tests.integration.datasets.loads import (
    Place,
    document,
    failed,
    finish,
    ingestion,
    load,
    outcomes,
    stamp,
    texts,
    unchanged,
)
from tests.processes import PATIENCE_S
from tests.raises_code import raises_code

LOADED, REPLACED, UNCHANGED, FAILED = Verdict.LOADED, Verdict.REPLACED, Verdict.UNCHANGED, Verdict.FAILED
DUPLICATE, SUPERSEDED, CONFLICT = Verdict.DUPLICATE, Verdict.SUPERSEDED, Verdict.CONFLICT


def test_a_row_holds_everything(store: Store, place: Place) -> None:
    given = document("a", "text", chunks=2, colour="red", nested={"n": [1, None]})
    assert outcomes(store, given) == [LoadOutcome(LOADED, 2)]

    row = place.rows()[1]
    assert given.vectors is not None
    assert row["embedding"] == given.vectors[1].tolist()
    assert {name: row[name] for name in row if name not in {"metadata", "embedding", "chunk_id"}} == {
        "doc_id": "a",
        "chunk_index": 1,
        "text": "text 1",
        "start": 10,
        "end": 16,
        "page": 2,
        "headings": ["Top", "Sub"],
        "token_count": 5,
        "truncated": False,
        "source_uri": "file:///a",
        "content_hash": given.content_hash,
        "model": "a-model",
        "model_revision": "rev-1",
    }
    assert str(row["chunk_id"]) == chunk_id("a", "f" * 64, 1)
    assert json.loads(row["metadata"]) == {"colour": "red", "nested": {"n": [1, None]}}


def test_an_ingestion_that_has_seen_another_dataset_is_told(store: Store) -> None:
    seen = store.prepare(stamp(1), lambda: None)
    assert store.prepare(stamp(2), lambda: None) == seen
    load(store, document("a"), by=replace(stamp(1), dataset_id=seen))
    with raises_code("dataset_deleted"):
        load(store, document("b"), by=replace(stamp(2), dataset_id="another"))
    with raises_code("dataset_deleted"):
        finish(store, replace(stamp(3), dataset_id="another"))
    assert store.known(["a", "b"]).keys() == {"a"}


def test_receipts_say_what_went_in(store: Store, place: Place) -> None:
    given = document("a", chunks=3)
    load(store, given, document("b", chunks=0))

    of, here = (1, ingestion(1)), "file:///a"
    expected = Receipt("a", given.content_hash, "f" * 64, 3, *of, *of, here, here, "", LOADED)
    for asked in (store, place.open()):
        assert asked.known(["a", "c"]) == {"a": expected}
        assert asked.known(["b"])["b"].chunks == 0


def test_warnings_stay_with_the_content(store: Store, place: Place) -> None:
    def told() -> tuple[list[str], dict[str, str]]:
        receipts, contents = place.open().known(["a", "b"]), place.contents()
        listed = contents.documents(0, 10).items
        contents.close()
        return [receipts[name].warnings for name in "ab"], {document.id: document.warnings for document in listed}

    warning = '[["unread_parts","Two parts of it are not read.",[2,3]]]'
    load(store, document("a")._replace(warnings=warning), document("b"))
    assert told() == ([warning, "[]"], {"a": warning, "b": "[]"})
    load(store, unchanged("a"), document("b"), by=stamp(2))
    load(store, failed("a"), by=stamp(3))
    assert told() == ([warning, "[]"], {"a": warning, "b": "[]"}), "the content is the same"
    load(store, document("a", "two"), document("b", "two")._replace(warnings=warning), by=stamp(4))
    assert told() == (["[]", warning], {"a": "[]", "b": warning})


def test_a_repetition_changes_nothing(store: Store, place: Place) -> None:
    given = [document("a"), document("b")]
    load(store, *given)
    before = place.rows()

    for again in (store, place.open()):
        assert outcomes(again, *given) == [LoadOutcome(LOADED, 2)] * 2
        assert place.rows() == before


def test_a_repetition_says_what_was_said_before(store: Store) -> None:
    load(store, document("a"), document("b"))
    given = [document("a", "new", chunks=3), unchanged("b"), failed("c"), document("d")]
    said = [LoadOutcome(REPLACED, 3), LoadOutcome(UNCHANGED, 2), LoadOutcome(FAILED), LoadOutcome(LOADED, 2)]

    for _ in range(3):
        assert outcomes(store, *given, by=stamp(2)) == said


def test_a_newer_ingestion_is_not_undone(store: Store, place: Place) -> None:
    load(store, document("a", "new"), by=stamp(2))

    assert load(store, document("a", "old"), document("b"), by=stamp(1)) == [SUPERSEDED, LOADED]
    assert texts(place.rows())["a"] == ["new 0", "new 1"]


def test_what_a_newer_ingestion_has_found_unchanged_is_not_replaced(store: Store, place: Place) -> None:
    load(store, document("x", "100"), by=stamp(1))
    assert load(store, unchanged("x", "100"), by=stamp(3)) == [UNCHANGED]

    assert load(store, document("x", "999"), by=stamp(2)) == [SUPERSEDED]
    assert texts(place.rows())["x"] == ["100 0", "100 1"]


def test_what_a_newer_sync_has_deleted_does_not_come_back(store: Store, place: Place) -> None:
    load(store, document("x"), by=stamp(1))
    assert finish(store, stamp(3)) == 1

    assert load(store, document("x"), document("new"), by=stamp(2)) == [SUPERSEDED, SUPERSEDED]
    assert place.rows() == []
    assert load(store, document("x"), by=stamp(4)) == [LOADED]


def test_another_models_vectors_are_refused(store: Store, place: Place) -> None:
    load(store, document("a", "old"), document("empty", chunks=0))

    with raises_code(
        "sink_model_mismatch", match=r"of a-model \(rev-1\), and .* of a-model \(rev-2\).*[Nn]ame another"
    ) as refusal:
        load(store, document("b"), by=stamp(2, vectors="a-model (rev-2)"))
    assert refusal.value.code == "sink_model_mismatch"
    assert texts(place.rows()).keys() == {"a"}
    finish(store, stamp(3))
    load(store, document("b"), by=stamp(4, vectors="a-model (rev-2)"))  # nothing is left that could be mixed
    assert texts(place.rows()).keys() == {"b"}


def test_another_dimension_is_refused(store: Store, place: Place) -> None:
    load(store, document("a"))

    with raises_code("sink_dimension_mismatch", match=r"8 dimensions.*makes 4.*[Nn]ame another"):
        load(store, document("b", dimension=4), by=stamp(2, dimension=4))
    with raises_code("sink_dimension_mismatch"):
        place.open().prepare(stamp(2, dimension=4), lambda: None)
    store.prepare(stamp(2), lambda: None)
    assert texts(place.rows()).keys() == {"a"}


def test_odd_ids_and_texts_come_through(store: Store, place: Place) -> None:
    names = ["é/ü \U0001f600", "'; DROP TABLE docs; --", "x" * 1024, '"', "\\u0000", " "]
    load(store, *(document(name, f"text of {name}", chunks=1) for name in names))

    assert store.known(names).keys() == set(names)
    assert texts(place.rows()) == {name: [f"text of {name} 0"] for name in names}


def test_a_zero_byte_is_no_reason_to_fail(store: Store, place: Place) -> None:
    name = "a\0b"
    odd: dict[str, Any] = {"k\0": ["v\0", {"\\u0000": 1}]}
    assert load(store, document(name, "x\0y", chunks=1, **odd)) == [LOADED]

    assert store.known([name]).keys() == {name}
    (row,) = place.rows()
    assert len(row["text"]) == 5
    metadata = json.loads(row["metadata"])
    assert metadata in ({"k\0": ["v\0", {"\\u0000": 1}]}, {"k\ufffd": ["v\ufffd", {"\\u0000": 1}]})


def test_a_load_that_is_stopped_leaves_nothing(store: Store, place: Place) -> None:
    load(store, document("a", "old"))

    class Stopped(Exception):
        pass

    def documents() -> Iterator[DocumentLoad]:
        yield from (document(f"d{i}") for i in range(600))
        yield document("a", "new")

    calls = iter(range(2))

    def progress() -> None:
        if next(calls, None) is None:
            raise Stopped

    with pytest.raises(Stopped):
        store.load(documents(), stamp(2), progress)
    assert texts(place.rows()) == {"a": ["old 0", "old 1"]}
    assert load(store, document("a", "new"), by=stamp(2)) == [REPLACED]


def test_a_sync_keeps_what_is_of_a_part_that_could_not_be_listed(store: Store, place: Place) -> None:
    def at(*places: str) -> list[DocumentLoad]:
        return [document(name, place=name) for name in places]

    load(store, *at("r/a", "r/sub/b", "r/subject", "r/data.csv#1", "r/data.csv2", "s/c"))

    assert load(store, UnreadPart("r/sub"), UnreadPart("r/data.csv"), *at("r/z"), by=stamp(2)) == [
        FAILED,
        FAILED,
        LOADED,
    ]
    for _ in range(2):  # of the roots, `s/` has listed nothing, and has documents; `t` has none
        assert store.finish(stamp(2), ("r", "s/", "t"), lambda: None) == (3, ["s/"])
    assert texts(place.rows()).keys() == {"r/sub/b", "r/data.csv#1", "r/z", "s/c"}
    # What was loaded by an older one into a part that the sync has not listed comes in; elsewhere it does not.
    older = replace(stamp(1), ingestion="another")
    assert load(store, *at("r/sub/new", "r/new"), by=older) == [LOADED, SUPERSEDED]


def test_loads_at_the_same_time_lose_nothing(place: Place) -> None:
    workers, rounds = 3, 4
    together = threading.Barrier(workers)

    def work(number: int) -> None:
        store = place.open()
        for turn in range(rounds):
            together.wait(PATIENCE_S)
            shared = document("shared", f"{number} {turn}", place=f"{number}")
            load(store, document(f"w{number}-{turn}"), shared, by=stamp(turn + 1))
        store.close()

    _in_threads(workers, work)

    found = texts(place.rows())
    own = {f"w{number}-{turn}" for number in range(workers) for turn in range(rounds)}
    assert found.keys() == own | {"shared"}
    assert all(len(chunks) == 2 for chunks in found.values())
    assert place.open().known(["shared"])["shared"].decided_by == ingestion(rounds)


def _in_threads(number: int, work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(number) as pool:
        for result in [pool.submit(work, i) for i in range(number)]:
            result.result(60)


def test_long_texts_and_places_are_no_reason_to_fail(store: Store, place: Place) -> None:
    words = " ".join(f"word{n}" for n in range(150_000))
    long = document("long", chunks=1)
    long = long._replace(chunks=[replace(long.chunks[0], text=words)])
    part = "file:///" + "".join(f"{n}/" for n in range(2000))
    assert load(store, long, document("short"), UnreadPart(part), UnreadPart(part)) == [
        LOADED,
        LOADED,
        *[Verdict.FAILED] * 2,
    ]
    assert texts(place.rows())["long"] == [words]
    assert [each.chunk.document_id for each in place.contents().words("word7", 9, None, lambda: False)] == ["long"]


def test_the_head_counts_what_is_there(store: Store, place: Place) -> None:
    contents = place.contents()
    for number in range(1, 5):
        load(
            store,
            *(document(f"d{n}", f"{number} {n}", chunks=n) for n in range(number, 5)),
            failed("f"),
            by=stamp(number),
        )
        head = contents.head()
        assert head.chunks == len(place.rows())
        assert head.documents == 4
    finish(store, stamp(4))
    assert (contents.head().documents, contents.head().chunks) == (1, len(place.rows()))


# ---- rules that a walk seldom meets


def test_a_folder_that_a_sync_has_spared_stays_spared_when_all_above_it_cannot_be_listed(store: Store) -> None:
    load(store, UnreadPart("r/in"), by=stamp(12))
    finish(store, stamp(10))
    load(store, UnreadPart("r"), by=stamp(13))
    late = document("a", place="r/in/a"), document("b", place="r/b")
    assert load(store, *late, by=stamp(9)) == [LOADED, SUPERSEDED]


def test_a_document_belongs_to_the_place_where_it_was_listed_last(store: Store) -> None:
    load(store, document("a", place="r/a"), document("b", place="r/b"))
    load(store, failed("a", "s/a"), by=stamp(2))
    load(store, UnreadPart("s"), by=stamp(3))
    assert finish(store, stamp(3)) == 1
    assert store.known(["a", "b"]).keys() == {"a"}


def test_a_second_document_is_a_duplicate_also_when_a_later_ingestion_has_listed_the_first(store: Store) -> None:
    load(store, document("a", place="r/a"))
    load(store, failed("a", "r/a"), by=stamp(2))
    assert load(store, document("a", "other", place="r/twice")) == [DUPLICATE]


def test_a_part_that_may_be_anywhere_keeps_everything(store: Store) -> None:
    load(store, document("a", place="file:1/a.jsonl#1"), document("b", place="inline:b"))
    load(store, document("c", place="file:2/a.jsonl#1"), UnreadPart(EVERYTHING), by=stamp(2))
    assert finish(store, stamp(2)) == 0
    assert store.known(["a", "b", "c"]).keys() == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("reloads", "text", "verdict"), [(False, "one", UNCHANGED), (True, "one", CONFLICT), (False, "two", CONFLICT)]
)
def test_the_same_content_of_another_file_is_unchanged_and_a_conflict_names_its_place(
    store: Store, text: str, verdict: Verdict, *, reloads: bool
) -> None:
    load(store, document("a", place="monday.csv#1", origin="monday.csv"))
    by = replace(stamp(2), replaces_others=False, reloads=reloads)
    (outcome,) = outcomes(store, document("a", text, place="tuesday.csv#1", origin="tuesday.csv"), by=by)
    assert (outcome.verdict, outcome.other) == (verdict, "" if verdict is UNCHANGED else "monday.csv#1")
