"""What every store of datasets does, over all of them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tasks.datasets.loads import LoadOutcome, Receipt, UnreadPart, Verdict
from tasks.datasets.store import Store, chunk_id
from tests.integration.datasets.loads import Place, document, failed, finish, ingestion, load, outcomes, stamp
from tests.processes import PATIENCE_S
from tests.raises_code import raises_code

LOADED, FAILED, SUPERSEDED = Verdict.LOADED, Verdict.FAILED, Verdict.SUPERSEDED


def test_a_row_and_a_receipt_hold_everything(store: Store, place: Place) -> None:
    warning = '[["unread_parts","Two parts of it are not read.",[2,3]]]'
    given = document("a", "text", chunks=2, colour="red", nested={"n": [1, None]})._replace(warnings=warning)
    assert outcomes(store, given, document("b", chunks=0)) == [LoadOutcome(LOADED, 2), LoadOutcome(LOADED, 0)]
    row = place.rows()[1]
    assert given.vectors is not None
    assert {name: row[name] for name in row if name != "metadata"} == {
        "doc_id": "a",
        "chunk_id": chunk_id("a", "f" * 64, 1),
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
        "embedding": given.vectors[1].tolist(),
        "model": "a-model",
        "model_revision": "rev-1",
    }
    assert json.loads(row["metadata"]) == {"colour": "red", "nested": {"n": [1, None]}}
    of, here = (1, ingestion(1)), "file:///a"
    expected = Receipt("a", given.content_hash, "f" * 64, 2, *of, *of, here, here, "", LOADED, warning)
    assert [each.warnings for each in place.contents().documents(0, 9).items] == [warning]
    for asked in (store, place.open()):
        assert asked.known(["a", "c"]) == {"a": expected}
        assert asked.known(["b"])["b"].chunks == 0


def test_other_vectors_are_refused(store: Store, place: Place) -> None:
    load(store, document("a", "old"), document("empty", chunks=0))
    with raises_code(
        "sink_model_mismatch", match=r"of a-model \(rev-1\), and .* of a-model \(rev-2\).*[Nn]ame another"
    ):
        load(store, document("b"), by=stamp(2, vectors="a-model (rev-2)"))
    for refused in (
        lambda: load(store, document("b", dimension=4), by=stamp(2, dimension=4)),
        lambda: place.open().prepare(stamp(2, dimension=4), lambda: None),
    ):
        with raises_code("sink_dimension_mismatch", match=r"8 dimensions.*makes 4.*[Nn]ame another"):
            refused()
    with pytest.raises(ValueError, match="shape"):
        load(store, document("b", dimension=4), by=stamp(2))
    assert place.texts().keys() == {"a"}
    finish(store, stamp(3))
    load(store, document("b"), by=stamp(4, vectors="a-model (rev-2)"))  # nothing is left that could be mixed
    assert place.texts().keys() == {"b"}


def test_odd_ids_texts_and_places_come_through(store: Store, place: Place) -> None:
    names = ["é/ü \U0001f600", "'; DROP TABLE docs; --", "x" * 1024, '"', "\\u0000", " "]
    load(store, *(document(name, f"text of {name}", chunks=1) for name in names))
    assert store.known(names).keys() == set(names)
    assert place.texts() == {name: [f"text of {name} 0"] for name in names}
    finish(store, stamp(2))

    odd: dict[str, Any] = {"k\0": ["v\0", {"\\u0000": 1}]}
    assert load(store, document("a\0b", "x\0y", chunks=1, **odd), by=stamp(3)) == [LOADED]
    assert store.known(["a\0b"]).keys() == {"a\0b"}
    (row,) = place.rows()
    assert len(row["text"]) == 5
    metadata = json.loads(row["metadata"])
    assert metadata in ({"k\0": ["v\0", {"\\u0000": 1}]}, {"k\ufffd": ["v\ufffd", {"\\u0000": 1}]})

    words = " ".join(f"word{n}" for n in range(150_000))
    long = document("long", chunks=1)
    long = long._replace(chunks=[replace(long.chunks[0], text=words)])
    part = UnreadPart("file:///" + "".join(f"{n}/" for n in range(2000)))
    assert load(store, long, document("short"), part, part, by=stamp(4)) == [LOADED, LOADED, FAILED, FAILED]
    assert place.texts()["long"] == [words]
    assert [each.chunk.document_id for each in place.contents().words("word7", 9, None, lambda: False)] == ["long"]


def test_loads_at_the_same_time_lose_nothing(place: Place) -> None:
    workers, rounds = 3, 4
    together = threading.Barrier(workers)

    def work(number: int) -> None:
        store = place.open()
        for turn in range(rounds):
            together.wait(PATIENCE_S)
            shared = document("shared", f"{number} {turn}", place=f"{number}")
            load(store, document(f"w{number}-{turn}"), shared, by=stamp(turn + 1))

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    found = place.texts()
    own = {f"w{number}-{turn}" for number in range(workers) for turn in range(rounds)}
    assert found.keys() == own | {"shared"}
    assert all(len(chunks) == 2 for chunks in found.values())
    assert place.open().known(["shared"])["shared"].decided_by == ingestion(rounds)


def test_a_folder_that_a_sync_has_spared_stays_spared_when_all_above_it_cannot_be_listed(store: Store) -> None:
    load(store, UnreadPart("r/in"), by=stamp(12))
    finish(store, stamp(10))
    load(store, UnreadPart("r"), by=stamp(13))
    spared, below = (document(name, place=name) for name in ("r/in/a", "r/b"))
    assert load(store, spared, below, by=stamp(9)) == [LOADED, SUPERSEDED]


def test_a_document_belongs_to_the_place_where_it_was_listed_last(store: Store) -> None:
    load(store, document("a", place="r/a"), document("b", place="r/b"))
    load(store, failed("a", "s/a"), by=stamp(2))
    assert load(store, document("a", "other", place="r/twice")) == [Verdict.DUPLICATE]
    load(store, UnreadPart("s"), by=stamp(3))
    assert finish(store, stamp(3)) == 1
    assert store.known(["a", "b"]).keys() == {"a"}
