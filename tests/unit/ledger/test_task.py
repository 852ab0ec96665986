"""Values of the ledger: what is stored of them and read back, how texts are cut into pieces, and ids."""

import time
import uuid
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.submit import missing
from tasks.item import Options, cost
from tasks.ledger import ids
from tasks.ledger.heartbeat import Worker
from tasks.ledger.task import Piece, PieceCutter, cut_texts
from tasks.model import Model, from_json
from tests.ledger_builders import a_model, a_worker

HOUR_S = 3600
MAX_TOKENS = 256
MODEL = a_model()
WORKER = a_worker("w", 100.25, started_at=1.5, rss_bytes=1, forward_passes=2, items=3, tokens=4, padded_tokens=5)

options = st.builds(
    Options,
    prompt_name=st.none() | st.text(max_size=20),
    dimensions=st.none() | st.integers(1, 4096),
    normalize=st.booleans(),
    truncate=st.booleans(),
)
texts = st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=60)


@given(options=options)
def test_options_are_read_back_as_they_were(options: Options) -> None:
    assert Options.from_text(options.to_text()) == options
    assert Options.from_text(options.to_text().encode()) == options


def test_what_workers_of_a_newer_version_say_is_read() -> None:
    novelty = {"novelty": [1]}
    assert Model.from_json(orjson.dumps(orjson.loads(MODEL.to_json()) | novelty)) == MODEL
    assert from_json(Worker, orjson.dumps(orjson.loads(orjson.dumps(WORKER)) | novelty)) == WORKER


def test_what_changes_no_vector_has_the_same_stamp() -> None:
    alike = {"device": "cuda:0", "compute": "openvino", "id": "other", "aliases": ("x",), "created_at": 9}
    assert a_model(**alike).stamp == MODEL.stamp
    for change in ({"model": "other"}, {"revision": "other"}, {"dimension": 1}):
        assert a_model(**change).stamp != MODEL.stamp


@pytest.mark.parametrize(("size_bytes", "tokens"), [(0, 1), (4, 1), (5, 2), (8, 2), (1023, 256), (10**6, 256)])
def test_cost_is_a_quarter_of_the_bytes_up_to_what_the_model_reads(size_bytes: int, tokens: int) -> None:
    assert cost("x" * size_bytes, MAX_TOKENS) == tokens


@given(texts=texts, max_items=st.integers(1, 10), max_cost=st.integers(1, 60))
def test_pieces_hold_all_texts_once_in_order_keep_to_the_limits_and_leave_no_room(
    texts: list[str], max_items: int, max_cost: int
) -> None:
    pieces = cut_texts(texts, max_tokens=MAX_TOKENS, max_items=max_items, max_cost=max_cost)
    held = [orjson.loads(piece.payload) for piece in pieces]
    assert [text for each in held for text in each] == texts
    cutter, first = PieceCutter(max_items=max_items, max_cost=max_cost), 0
    for text in texts:
        cutter.add(cost(text, MAX_TOKENS))
    for piece, own, cut in zip(pieces, held, cutter.pieces, strict=True):
        assert piece.items == len(own) <= max_items
        assert piece.cost == sum(cost(text, MAX_TOKENS) for text in own)
        assert piece.cost <= max_cost or piece.items == 1
        assert cut == (first, piece.items, piece.cost)
        read = Piece("t", "0", first, 1, 1, 1, piece.items - 1, Options(), piece.payload)
        assert read.texts() == own[-1:], "a part of a piece reads its own texts"
        first += piece.items
    for (before, _), (_, following) in pairwise(zip(pieces, held, strict=True)):
        fits = before.cost + cost(following[0], MAX_TOKENS) <= max_cost
        assert before.items == max_items or not fits, "a text was left for the next piece although it fits"


def id_of(age_s: float) -> str:
    fixed = 0x7 << 76 | 0x2 << 62 | 0x1234
    return f"task_{uuid.UUID(int=int(1000 * (time.time() - age_s)) << 80 | fixed).hex}"


def test_ids_differ_sort_by_age_and_say_when_their_task_is_past_its_retention() -> None:
    made = [ids.new_task_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert made == sorted(made)
    old, young = missing(id_of(2 * HOUR_S), HOUR_S), missing(id_of(HOUR_S / 2), HOUR_S)
    assert [(error.status, error.code) for error in (old, young)] == [(410, "task_expired"), (404, "task_not_found")]
    for text in (
        *("", "task_", "task_0", "019a0000000070008000000000000000", "TASK_019a0000000070008000000000000000"),
        *("task_019a0000000040008000000000000000", "task_019a000000007000c000000000000000"),
        *("task_019a0000000070008000000000000000\n", "task_019A0000000070008000000000000000"),
        *("task_019a000000007000800000000000000", "task_\u066019a000000007000800000000000000"),
        "../task_019a0000000070008000000000000000",
    ):
        assert ids.created_ms(text) is None, text
        assert missing(text, HOUR_S).code == "task_not_found"
