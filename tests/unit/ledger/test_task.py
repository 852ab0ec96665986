"""Values of the ledger: what is stored of them and read back."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tasks.item import Options, TextError
from tasks.ledger.heartbeat import Worker
from tasks.ledger.task import Outcome, Piece, PieceCutter, State, cut_texts
from tasks.model import Model, from_json
from tests.ledger_builders import a_model, a_worker

options = st.builds(
    Options,
    prompt_name=st.none() | st.text(max_size=20),
    dimensions=st.none() | st.integers(1, 4096),
    normalize=st.booleans(),
    truncate=st.booleans(),
)
MODEL = a_model()
WORKER = a_worker("w", 100.25, started_at=1.5, rss_bytes=1, forward_passes=2, items=3, tokens=4, padded_tokens=5)


@given(options=options)
def test_options_are_read_back_as_they_were(options: Options) -> None:
    assert Options.from_text(options.to_text()) == options
    assert Options.from_text(options.to_text().encode()) == options


def test_default_options_take_no_space() -> None:
    assert Options().to_text() == ""


def test_only_what_differs_from_the_default_is_stored() -> None:
    assert orjson.loads(Options(dimensions=64).to_text()) == {"dimensions": 64}


def test_open_states_are_not_terminal() -> None:
    assert {state for state in State if not state.terminal} == {State.QUEUED, State.IN_PROGRESS}


def piece(first: int, items: int, offset: int) -> Piece:
    return Piece("t", "0", first, items, 1, 1, offset, Options(), orjson.dumps(["a", "b", "c"]))


def test_a_part_of_a_piece_reads_its_own_texts() -> None:
    assert piece(10, 3, 0).texts() == ["a", "b", "c"]
    assert piece(11, 1, 1).texts() == ["b"]
    assert piece(12, 1, 2).texts() == ["c"]


def test_a_piece_has_a_bound_in_texts_and_in_cost() -> None:
    cutter = PieceCutter(max_items=3, max_cost=10)
    for cost in (4, 4, 4, 1, 1, 1, 50, 1):
        cutter.add(cost)
    assert cutter.pieces == [(0, 2, 8), (2, 3, 6), (5, 1, 1), (6, 1, 50), (7, 1, 1)]
    assert PieceCutter(max_items=1, max_cost=1).pieces == []


def test_pieces_hold_all_texts_in_their_order() -> None:
    texts = ["a", "b" * 40, "c"]
    pieces = cut_texts(texts, max_tokens=8, max_items=2, max_cost=100)
    assert [(piece.items, piece.cost, orjson.loads(piece.payload)) for piece in pieces] == [
        (2, 9, texts[:2]),
        (1, 1, texts[2:]),
    ]


def test_an_outcome_without_errors_or_truncations_stores_nothing_beside_its_vectors() -> None:
    assert Outcome(piece(0, 1, 0), b"", tokens=1).extra() == b""


def test_errors_and_truncations_are_stored_beside_the_vectors() -> None:
    errors = {4: TextError("c", "m")}
    done = Outcome(piece(4, 2, 0), b"", tokens=1, errors=errors, truncated=[5])
    assert orjson.loads(done.extra()) == {"errors": [[4, "c", "m"]], "truncated": [5]}
    assert done.failed == 1


def test_what_workers_say_is_read_back_as_it_was() -> None:
    assert Model.from_json(MODEL.to_json()) == MODEL
    assert from_json(Worker, orjson.dumps(WORKER)) == WORKER


def test_what_workers_of_a_newer_version_say_is_read() -> None:
    novelty = {"novelty": [1]}
    assert Model.from_json(orjson.dumps(orjson.loads(MODEL.to_json()) | novelty)) == MODEL
    assert from_json(Worker, orjson.dumps(orjson.loads(orjson.dumps(WORKER)) | novelty)) == WORKER


def test_what_changes_no_vector_has_the_same_stamp() -> None:
    alike = {"device": "cuda:0", "compute": "openvino", "id": "other", "aliases": ("x",), "created_at": 9}
    assert a_model(**alike).stamp == MODEL.stamp
    for change in ({"model": "other"}, {"revision": "other"}, {"dimension": 1}):
        assert a_model(**change).stamp != MODEL.stamp
