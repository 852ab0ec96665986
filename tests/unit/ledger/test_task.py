"""Values of the ledger: what is stored of them and read back, and how texts are cut into pieces."""

from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.item import Options, cost
from tasks.ledger.heartbeat import Worker
from tasks.ledger.task import Piece, PieceCutter, cut_texts
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


def piece(first: int, items: int, offset: int) -> Piece:
    return Piece("t", "0", first, items, 1, 1, offset, Options(), orjson.dumps(["a", "b", "c"]))


def test_a_part_of_a_piece_reads_its_own_texts() -> None:
    assert piece(10, 3, 0).texts() == ["a", "b", "c"]
    assert piece(11, 1, 1).texts() == ["b"]
    assert piece(12, 1, 2).texts() == ["c"]


def test_a_piece_has_a_bound_in_texts_and_in_cost() -> None:
    cutter = PieceCutter(max_items=3, max_cost=10)
    for number in (4, 4, 4, 1, 1, 1, 50, 1):
        cutter.add(number)
    assert cutter.pieces == [(0, 2, 8), (2, 3, 6), (5, 1, 1), (6, 1, 50), (7, 1, 1)]
    assert PieceCutter(max_items=1, max_cost=1).pieces == []


def test_what_workers_of_a_newer_version_say_is_read() -> None:
    novelty = {"novelty": [1]}
    assert Model.from_json(orjson.dumps(orjson.loads(MODEL.to_json()) | novelty)) == MODEL
    assert from_json(Worker, orjson.dumps(orjson.loads(orjson.dumps(WORKER)) | novelty)) == WORKER


def test_what_changes_no_vector_has_the_same_stamp() -> None:
    alike = {"device": "cuda:0", "compute": "openvino", "id": "other", "aliases": ("x",), "created_at": 9}
    assert a_model(**alike).stamp == MODEL.stamp
    for change in ({"model": "other"}, {"revision": "other"}, {"dimension": 1}):
        assert a_model(**change).stamp != MODEL.stamp


MAX_TOKENS = 256
texts = st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("size_bytes", "tokens"), [(0, 1), (1, 1), (4, 1), (5, 2), (8, 2), (1023, 256), (1024, 256), (10**6, 256)]
)
def test_cost_is_a_quarter_of_the_bytes_up_to_what_the_model_reads(size_bytes: int, tokens: int) -> None:
    assert cost("x" * size_bytes, MAX_TOKENS) == tokens


@given(texts=texts, max_items=st.integers(1, 10), max_cost=st.integers(1, 60))
def test_pieces_hold_all_texts_once_in_order(texts: list[str], max_items: int, max_cost: int) -> None:
    pieces = cut_texts(texts, max_tokens=MAX_TOKENS, max_items=max_items, max_cost=max_cost)
    assert [text for piece in pieces for text in orjson.loads(piece.payload)] == texts
    assert [len(orjson.loads(piece.payload)) for piece in pieces] == [piece.items for piece in pieces]


@given(texts=texts, max_items=st.integers(1, 10), max_cost=st.integers(1, 60))
def test_pieces_keep_to_the_limits_and_leave_no_room(texts: list[str], max_items: int, max_cost: int) -> None:
    pieces = cut_texts(texts, max_tokens=MAX_TOKENS, max_items=max_items, max_cost=max_cost)
    for piece in pieces:
        held = orjson.loads(piece.payload)
        assert piece.cost == sum(cost(text, MAX_TOKENS) for text in held)
        assert 1 <= piece.items <= max_items
        assert piece.cost <= max_cost or piece.items == 1
    for before, following in pairwise(pieces):
        first = orjson.loads(following.payload)[0]
        fits = before.cost + cost(first, MAX_TOKENS) <= max_cost
        assert before.items == max_items or not fits, "a text was left for the next piece although it fits"
