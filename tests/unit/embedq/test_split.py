"""Cutting texts into requests."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedq.split import json_bytes, split

TEXTS = st.lists(st.text(max_size=30), max_size=60)


@given(texts=TEXTS, max_items=st.integers(1, 10), max_bytes=st.integers(1, 200))
def test_pieces_hold_every_text_in_order_within_the_limits(texts: list[str], max_items: int, max_bytes: int) -> None:
    pieces = list(split(texts, json_bytes, max_items=max_items, max_bytes=max_bytes))
    assert [text for piece in pieces for text in piece] == texts
    for piece in pieces:
        assert 1 <= len(piece) <= max_items
        assert len(piece) == 1 or sum(map(json_bytes, piece)) <= max_bytes


def test_the_defaults_are_the_limits_of_the_server() -> None:
    pieces = list(split(["x"] * 2049, json_bytes))
    assert [len(piece) for piece in pieces] == [2048, 1]
    assert len(list(split(["x" * 2**20] * 9, json_bytes))) == 2


@pytest.mark.parametrize("text", ["", "plain", "Ä", "😀", 'quote " and \\', "\x00\n", "\ud800"])
def test_size_is_that_of_the_json_body(text: str) -> None:
    body = json.dumps([text, text], ensure_ascii=False).encode(errors="surrogatepass")
    # Two brackets, and a space after the comma that the estimate counts without.
    assert 2 * json_bytes(text) == len(body) - 2
