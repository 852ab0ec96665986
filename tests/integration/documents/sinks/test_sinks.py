"""What every sink does, over all of them."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stack.testing import PATIENCE_S
from tasks.documents.sinks.sink import LoadDocument, LoadOutcome, Receipt, Sink, chunk_id
from tests.integration.documents.sinks.loads import Place, document, ingestion, load, stamp, texts
from tests.raises_code import raises_code

LOADED, DUPLICATE, SUPERSEDED = LoadOutcome.LOADED, LoadOutcome.DUPLICATE, LoadOutcome.SUPERSEDED


def test_before_the_first_load_nothing_is_known(sink: Sink, place: Place) -> None:
    assert sink.known(["a"]) == {}
    assert sink.keep_only(lambda: iter([]), stamp(), lambda: None) == 0
    assert load(sink) == {}
    assert place.rows() == []


def test_a_row_holds_everything(sink: Sink, place: Place) -> None:
    given = document("a", "text", chunks=2, colour="red", nested={"n": [1, None]})
    assert load(sink, given) == {"a": [LOADED]}

    row = place.rows()[1]
    metadata = row["metadata"].replace(" ", "")
    vector = np.asarray(row["embedding"], np.float32)
    assert (vector == given.vectors[1]).all()
    rest = {name: row[name] for name in row if name not in {"metadata", "embedding", "chunk_id", "v"}}
    assert rest == {
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
    assert metadata in ('{"colour":"red","nested":{"n":[1,null]}}', '{"nested":{"n":[1,null]},"colour":"red"}')


def test_receipts_say_what_went_in(sink: Sink, place: Place) -> None:
    given = document("a", page=7, chunks=3)
    load(sink, given, document("b", chunks=0))

    expected = Receipt("a", given.content_hash, "f" * 64, ingestion(1), 7, 3, 1)
    for asked in (sink, place.open()):
        assert asked.known(["a", "c"]) == {"a": expected}
        assert asked.known(["b"])["b"].chunks == 0


def test_receipts_say_which_file_a_record_came_from(sink: Sink, place: Place) -> None:
    load(sink, document("a", origin="a.csv"), document("b", origin="b.csv\0"), document("c"))

    for asked in (sink, place.open()):
        assert [asked.known(["a", "b", "c"])[name].origin[:5] for name in "abc"] == ["a.csv", "b.csv", ""]


def test_receipts_of_many_documents(sink: Sink) -> None:
    load(sink, *(document(f"d{i}", chunks=1) for i in range(1500)))

    assert len(sink.known([f"d{i}" for i in range(0, 3000, 2)])) == 750


def test_a_repetition_changes_nothing(sink: Sink, place: Place) -> None:
    given = [document("a"), document("b", page=1)]
    load(sink, *given)
    before = place.rows()

    for again in (sink, place.open()):
        assert load(again, *given) == {"a": [LOADED], "b": [LOADED]}
        assert place.rows() == before


def test_a_new_version_takes_the_place_of_the_old_one(sink: Sink, place: Place) -> None:
    load(sink, document("a", "old", chunks=5), document("b", "stays"))

    load(sink, document("a", "new", chunks=2), by=stamp(2))

    assert texts(place.rows()) == {"a": ["new 0", "new 1"], "b": ["stays 0", "stays 1"]}
    assert sink.known(["a"])["a"].ingestion == ingestion(2)
    assert sink.known(["b"])["b"].ingestion == ingestion(1)


def test_another_pipeline_replaces_all_chunks(sink: Sink, place: Place) -> None:
    load(sink, document("a", "text", chunks=3))

    load(sink, document("a", "text", chunks=3), by=stamp(2, fingerprint="e" * 64))

    assert [str(row["chunk_id"]) for row in place.rows()] == [chunk_id("a", "e" * 64, i) for i in range(3)]


def test_a_page_that_is_run_again_on_changed_content_replaces_itself(sink: Sink, place: Place) -> None:
    load(sink, document("a", "first"))

    assert load(sink, document("a", "second", chunks=1)) == {"a": [LOADED]}
    assert texts(place.rows()) == {"a": ["second 0"]}


def test_an_empty_document_takes_its_earlier_version_away(sink: Sink, place: Place) -> None:
    load(sink, document("a"), document("b"))

    assert load(sink, document("a", "", chunks=0), by=stamp(2)) == {"a": [LoadOutcome.REPLACED]}
    assert texts(place.rows()).keys() == {"b"}
    assert sink.known(["a"])["a"] == Receipt("a", document("a", "").content_hash, "f" * 64, ingestion(2), 0, 0, 2)

    load(sink, document("b", "", chunks=0), by=stamp(2))
    assert place.rows() == []
    assert sink.known(["a", "b"]).keys() == {"a", "b"}


def test_the_first_of_two_pages_wins(sink: Sink, place: Place) -> None:
    load(sink, document("a", "first", page=1))

    assert load(sink, document("a", "second", page=2), document("b")) == {"a": [DUPLICATE], "b": [LOADED]}
    assert texts(place.rows())["a"] == ["first 0", "first 1"]


def test_duplicates_within_one_call(sink: Sink, place: Place) -> None:
    given = [document("a", "x", page=1), document("a", "y", page=2), document("a", "x", page=1), document("a", page=1)]

    assert load(sink, *given) == {"a": [LOADED, DUPLICATE, LOADED, DUPLICATE]}
    assert texts(place.rows()) == {"a": ["x 0", "x 1"]}


def test_a_newer_ingestion_is_not_undone(sink: Sink, place: Place) -> None:
    load(sink, document("a", "new"), by=stamp(2))

    assert load(sink, document("a", "old"), document("b"), by=stamp(1)) == {"a": [SUPERSEDED], "b": [LOADED]}
    assert texts(place.rows())["a"] == ["new 0", "new 1"]


def test_another_models_vectors_are_refused(sink: Sink, place: Place) -> None:
    load(sink, document("a", "old"), document("empty", chunks=0))

    with raises_code(
        "sink_model_mismatch", match=r"of a-model \(rev-1\), and .* of a-model \(rev-2\).*[Nn]ame another"
    ) as refusal:
        load(sink, document("b"), by=stamp(2, vectors="a-model (rev-2)"))
    assert refusal.value.code == "sink_model_mismatch"
    assert texts(place.rows()).keys() == {"a"}
    sink.keep_only(lambda: iter(["empty"]), stamp(3), lambda: None)
    load(sink, document("b"), by=stamp(4, vectors="a-model (rev-2)"))  # nothing is left that could be mixed
    assert texts(place.rows()).keys() == {"b"}


def test_another_dimension_is_refused(sink: Sink, place: Place) -> None:
    load(sink, document("a"))

    with raises_code("sink_dimension_mismatch", match=r"8 dimensions.*makes 4.*[Nn]ame another") as refusal:
        load(sink, document("b", dimension=4), by=stamp(2, dimension=4))
    assert refusal.value.code == "sink_dimension_mismatch"
    assert texts(place.rows()).keys() == {"a"}


def test_another_dimension_is_refused_before_anything_is_loaded(sink: Sink, place: Place) -> None:
    sink.prepare(stamp(), lambda: None)
    load(sink, document("a"))

    with raises_code("sink_dimension_mismatch"):
        place.open().prepare(stamp(2, dimension=4), lambda: None)
    sink.prepare(stamp(2), lambda: None)
    assert texts(place.rows()).keys() == {"a"}


def test_odd_ids_and_texts_come_through(sink: Sink, place: Place) -> None:
    names = ["é/ü \U0001f600", "'; DROP TABLE docs; --", "x" * 1024, '"', "\\u0000", " "]
    load(sink, *(document(name, f"text of {name}", chunks=1) for name in names))

    assert sink.known(names).keys() == set(names)
    assert texts(place.rows()) == {name: [f"text of {name} 0"] for name in names}


def test_a_zero_byte_is_no_reason_to_fail(sink: Sink, place: Place) -> None:
    name = "a\0b"
    odd: dict[str, Any] = {"k\0": ["v\0", {"\\u0000": 1}]}
    assert load(sink, document(name, "x\0y", chunks=1, **odd)) == {name: [LOADED]}

    assert sink.known([name]).keys() == {name}
    (row,) = place.rows()
    assert len(row["text"]) == 5
    metadata = json.loads(row["metadata"])
    assert metadata in ({"k\0": ["v\0", {"\\u0000": 1}]}, {"k\ufffd": ["v\ufffd", {"\\u0000": 1}]})


def test_a_load_that_is_stopped_leaves_nothing(sink: Sink, place: Place) -> None:
    load(sink, document("a", "old"))

    class Stopped(Exception):
        pass

    def documents() -> Iterator[LoadDocument]:
        yield from (document(f"d{i}") for i in range(600))
        yield document("a", "new")

    calls = iter(range(2))

    def progress() -> None:
        if next(calls, None) is None:
            raise Stopped

    with pytest.raises(Stopped):
        sink.load(documents(), stamp(2), progress)
    assert texts(place.rows()) == {"a": ["old 0", "old 1"]}
    assert load(sink, document("a", "new"), by=stamp(2)) == {"a": [LoadOutcome.REPLACED]}


def test_what_was_not_seen_goes(sink: Sink, place: Place) -> None:
    load(sink, *(document(f"old{i}", chunks=1) for i in range(10)), document("empty", chunks=0))
    load(sink, document("later"), by=stamp(3))
    load(sink, document("old3", "changed", chunks=1), by=stamp(2))

    assert sink.keep_only(lambda: iter(["old1", "old3", "old1", "never"]), stamp(2), lambda: None) == 9

    assert texts(place.rows()) == {"old1": ["one 0"], "old3": ["changed 0"], "later": ["one 0", "one 1"]}
    assert sink.known(["old1", "old2", "old3", "empty", "later"]).keys() == {"old1", "old3", "later"}
    assert sink.keep_only(lambda: iter(["old1", "old3"]), stamp(2), lambda: None) == 0


def test_everything_may_go(sink: Sink, place: Place) -> None:
    load(sink, document("a"), document("b"))

    assert sink.keep_only(lambda: iter([]), stamp(2), lambda: None) == 2
    assert place.rows() == []
    # Nothing of another dimension is left, and what comes next is loaded like anything else.
    assert load(sink, document("a"), by=stamp(3)) == {"a": [LOADED]}


def test_loads_at_the_same_time_lose_nothing(place: Place) -> None:
    workers, rounds = 3, 4
    together = threading.Barrier(workers)

    def work(number: int) -> None:
        sink = place.open()
        for turn in range(rounds):
            together.wait(PATIENCE_S)
            shared = document("shared", f"{number} {turn}", page=number)
            load(sink, document(f"w{number}-{turn}"), shared, by=stamp(turn + 1))
        sink.close()

    _in_threads(workers, work)

    found = texts(place.rows())
    own = {f"w{number}-{turn}" for number in range(workers) for turn in range(rounds)}
    assert found.keys() == own | {"shared"}
    assert all(len(chunks) == 2 for chunks in found.values())
    assert place.open().known(["shared"])["shared"].ingestion == ingestion(rounds)


def test_the_same_load_by_two_workers_goes_in_once(place: Place) -> None:
    given = [document(f"d{i}", page=i % 3) for i in range(50)]
    outcomes = []
    together = threading.Barrier(2)

    def work(_: int) -> None:
        sink = place.open()
        together.wait(PATIENCE_S)
        outcomes.append(load(sink, *given))
        sink.close()

    _in_threads(2, work)

    assert outcomes == [{one.id: [LOADED] for one in given}] * 2
    assert texts(place.rows()) == {one.id: ["one 0", "one 1"] for one in given}


def test_loads_while_others_are_deleted(place: Place) -> None:
    load(place.open(), *(document(f"old{i}") for i in range(20)))

    def work(number: int) -> None:
        sink = place.open()
        if number:
            load(sink, document("new"), by=stamp(3))
        else:
            assert sink.keep_only(lambda: iter(["old1"]), stamp(2), lambda: None) == 19
        sink.close()

    _in_threads(2, work)

    assert texts(place.rows()).keys() == {"old1", "new"}


def test_of_two_files_with_one_id_the_first_stays_when_both_load_at_once(place: Place) -> None:
    together = threading.Barrier(2)
    outcomes: list[LoadOutcome] = []

    def work(number: int) -> None:
        sink = place.open()
        together.wait(PATIENCE_S)
        one = document("1", f"of {number}", origin=f"{number}.csv")
        outcomes.extend(load(sink, one, by=replace(stamp(number), replaces_others=False))["1"])
        sink.close()

    _in_threads(2, work)
    assert sorted(outcomes) == [LoadOutcome.CONFLICT, LOADED]


def _in_threads(number: int, work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(number) as pool:
        for result in [pool.submit(work, i) for i in range(number)]:
            result.result(60)
