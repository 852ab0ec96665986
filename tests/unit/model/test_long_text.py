"""Texts far above the window: tokenized as if they were read to their end, and not read to their end."""

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tasks.model.long_text import Reading, WindowReader, find_seam
from tests.unit.model.long_text_tokenizers import WITH_SEAMS, WITHOUT_SEAMS

WINDOW = 8
CYRILLIC = "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 "
LARGE = 2**16

UNITS = [
    *("a", "B", "word", "dog", "7", "x" * 30, "\u00e9", "e\u0301", "\u0301", "\u0430\u0431"),
    *("\u05d0", "\u0627", "\u0915\u093f", "\u0e01\u0e31", "\u0e35", "\u0628\u064e", "\u0628\u0651\u064f "),
    *("\u6f22", "\u6f22\u5b57", "\u3042", "\u30ab", "\ud55c", "\u1112\u1161\u11ab", "\u0e01\u0e33", "\uff76\uff9e"),
    *(" ", "  ", "    ", "\n", "\r\n", "\t", "\u3000"),
    *("\u00a0", "\u2028", "\u200b", "\ufeff", "\x0b", "\x0c", "\x1c", "\x85"),
    *(".", ",", "...", "?!", "'", "'s", "'ll", "''", "``", "_", "-", "/", "(", ")", '"', "#"),
    *("\u3002", "\uff01", "\u2026", "\u2019"),
    *("\0", "\x01", "\x7f", "\u037a", "\u3164", "\ufdfa", "\u0149", "\u0130", "\u03a3"),
    *("\u2581", "\u2581a", "\u00bd", "\ufb01"),
    *("\U0001f986", "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea", "\U00020000", "\uf8ff", "\U000e0001"),
    *("<mask>", "<sep>", "<s>", "</s>", "[SEP]", "[x,y]", "<|end|>", "fox.", "over", "Dog\n", "[", "<", ">", "]", "x,"),
    *("[x]", "!y!", "abc\u2581 d", "x\u00a0 y", "\u302e", "\u034f", "\u1b44"),
]  # fmt: skip

PARTS = st.tuples(st.sampled_from(UNITS) | st.text(max_size=3), st.sampled_from([1, 1, 1, 2, 3, 40, 130]))
TEXTS = st.lists(PARTS, min_size=4, max_size=60).map(lambda parts: "".join(unit * times for unit, times in parts))
PROMPTS = st.sampled_from(["", "query: ", "dog", "  ", "\u6f22\u5b57"])
EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Counted:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.characters = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode_batch_fast(self, texts: list[str]) -> Any:
        self.characters += sum(map(len, texts))
        return self._tokenizer.encode_batch_fast(texts)


@cache
def made(kind: str, window: int = WINDOW) -> Tokenizer:
    tokenizer = (WITH_SEAMS[kind] if kind in WITH_SEAMS else WITHOUT_SEAMS[kind])()
    tokenizer.no_padding()
    tokenizer.enable_truncation(window)
    return tokenizer


@cache
def reader(kind: str) -> WindowReader:
    return WindowReader(made(kind))


@cache
def uncut(kind: str) -> Tokenizer:
    tokenizer = (WITH_SEAMS[kind] if kind in WITH_SEAMS else WITHOUT_SEAMS[kind])()
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def read(kind: str, text: str, prompt: str = "", window: int = WINDOW) -> tuple[Reading, int]:
    """What is read, and of how many characters."""
    counted = Counted(made(kind, window))
    [reading] = WindowReader(counted)([text], prompt)
    return reading, counted.characters


def tokens(encoding: Any) -> int:
    return len(encoding.ids) + sum(len(piece) - 2 for piece in encoding.overflowing)


@pytest.mark.no_cover  # as the next: what runs here is covered without it, and is slower when it is traced
@pytest.mark.parametrize("kind", WITH_SEAMS)
@EXAMPLES
@given(text=TEXTS)
def test_the_tokens_in_front_of_every_seam_are_those_of_the_whole_text(kind: str, text: str) -> None:
    tokenizer, seam = uncut(kind), find_seam(uncut(kind))
    assert seam is not None
    [whole] = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    ends = [match.start() for match in seam.finditer(text)]
    beginnings = [text[:end] for end in ends[:: 1 + len(ends) // 20]]
    for beginning, encoding in zip(
        beginnings, tokenizer.encode_batch_fast(beginnings, add_special_tokens=False), strict=True
    ):
        assert whole.ids[: len(encoding.ids)] == encoding.ids, beginning


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", [*WITH_SEAMS, *WITHOUT_SEAMS])
@EXAMPLES
@given(texts=st.lists(TEXTS, min_size=1, max_size=3), prompt=PROMPTS)
def test_texts_have_the_tokens_that_they_have_when_they_are_read_to_their_end(
    kind: str, texts: list[str], prompt: str
) -> None:
    readings = reader(kind)(texts, prompt)
    for reading, expected in zip(
        readings, made(kind).encode_batch_fast([prompt + text for text in texts]), strict=True
    ):
        assert (reading.encoding.ids, reading.encoding.type_ids) == (expected.ids, expected.type_ids)
        assert bool(reading.encoding.overflowing) == bool(expected.overflowing)
        if reading.exact:
            assert tokens(reading.encoding) == tokens(expected)
        else:
            assert WINDOW < tokens(reading.encoding) <= tokens(expected)


@pytest.mark.parametrize("unit", ["some words, and more. ", "Some Words\n", CYRILLIC, "12.5, "])
@pytest.mark.parametrize("kind", [kind for kind in WITH_SEAMS if "odd" not in kind])
def test_of_a_long_text_no_more_is_read_than_the_window_takes(kind: str, unit: str) -> None:
    reading, characters = read(kind, unit * LARGE)
    assert (reading.exact, len(reading.encoding.ids)) == (False, WINDOW)
    assert characters < 100 * WINDOW


@pytest.mark.parametrize(
    "unit",
    [
        *("\u6f22\u5b57", "\u6f22\u5b57\u3002", "abc+/", "a" * 99 + " ", ".", "-_", "\u0561\u0562 ", "\u10d0\u10d1 "),
        *("\u0628\u0650\u0633\u0652\u0645\u0650 ", "z\u0337\n", "\u1820\u1821 ", "\u20ac\t"),
    ],
)
def test_the_default_model_cuts_texts_without_blanks_too(unit: str) -> None:
    reading, characters = read("word-piece", unit * LARGE)
    assert (reading.exact, len(reading.encoding.ids)) == (False, WINDOW)
    assert characters < 300 * WINDOW


@pytest.mark.parametrize(
    ("unit", "count"),
    [
        ("a", 3),
        ("\u0436", 3),
        ("\u0b95", 3),
        ("\U0001f600\U0001f92a", 3),
        ("\u2500\u2502", 3),
        (" ", 2),
        (" \n\t\r", 2),
        ("\u00a0\u3000", 2),
        ("\x00\x01\x7f", 2),
        ("\u0301\u200b\ufffd", 2),
        ("a\u0301", 3),
        ("\u0e17\u0e35\u0e48\u0e43\u0e2b\u0e0d\u0e48", 3),
        ("\u1780\u17b6\u179a", 3),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", 3),
        ("\U0001f44d\U0001f3fd\u2764\ufe0f", 3),
        pytest.param("a" * 5000 + " " * 5000, 2 + LARGE // 5000, id="long words and many blanks"),
    ],
)
def test_the_default_model_reads_little_where_many_characters_are_few_tokens(unit: str, count: int) -> None:
    window = 100
    text = (unit * LARGE)[: 2 * LARGE if len(unit) > 100 else LARGE]
    reading, characters = read("word-piece", text, window=window)
    [expected] = made("word-piece", window).encode_batch_fast([text])
    assert (reading.exact, reading.encoding.ids) == (True, expected.ids)
    assert tokens(reading.encoding) >= count
    assert characters < LARGE // 10


@pytest.mark.parametrize(
    "unit", ["\u0e17\u0e35\u0e48", "a\u0301", "\u0915\u094d\u0937\u093f", "\u0e35\u0e48", "\ufe0f", "\u064b"]
)
@pytest.mark.parametrize("kind", ["word-piece", "words, accents kept"])
def test_runs_of_marks_are_not_read_to_their_end(kind: str, unit: str) -> None:
    text = unit * (LARGE // len(unit))
    reading, characters = read(kind, text, window=100)
    [expected] = made(kind, 100).encode_batch_fast([text])
    assert (reading.exact, reading.encoding.ids) == (True, expected.ids)
    alternates = kind == "word-piece" and unit == "\u0e35\u0e48"  # two kinds of marks in turn, and no letter
    assert (characters < LARGE // 10) is not alternates


def test_a_token_of_two_words_has_no_seam_within_it() -> None:
    seam = find_seam(made("word-piece with odd added tokens of two words"))
    assert seam is not None
    assert [bool(seam.search(text)) for text in ("abc\u2581 d", "x\u00a0 y", "a.")] == [False, False, True]


def test_a_token_at_the_edge_of_a_word_leaves_it_unknown() -> None:
    kind, text = "word-piece with added tokens of punctuation", "a" * 2000 + "fox."
    reading, _ = read(kind, text)
    [expected] = made(kind).encode_batch_fast([text])
    assert (reading.encoding.ids, bool(reading.encoding.overflowing)) == (expected.ids, False)


def test_punctuation_that_the_normalizer_takes_away_is_no_seam() -> None:
    seams = [find_seam(made(kind)) for kind in ("word-piece", "words, punctuation replaced")]
    assert [bool(seam and seam.search("--")) for seam in seams] == [True, False]


def test_an_underscore_is_no_seam_beside_an_added_token_that_is_a_whole_word() -> None:
    seams = [find_seam(made(kind)) for kind in ("word-piece", "word-piece with added tokens of punctuation")]
    assert [bool(seam and seam.search("]_")) for seam in seams] == [True, False]


def test_how_far_a_text_is_read_again_follows_from_its_tokens() -> None:
    window = 100
    reading, characters = read("word-piece", ("a" * 150 + " ") * LARGE, window=window)
    assert (reading.exact, len(reading.encoding.ids)) == (False, window)
    assert characters < 200 * window  # 150 for each token, of which a third is left out; one and a half times as many


@pytest.mark.parametrize("kind", WITHOUT_SEAMS)
def test_a_tokenizer_of_unknown_kind_reads_all(kind: str) -> None:
    assert find_seam(made(kind)) is None
    reading, characters = read(kind, "some words, and more. " * 1000)
    assert (reading.exact, characters) == (True, 22_000)


def test_a_text_of_a_few_windows_is_counted_to_its_end() -> None:
    reading, characters = read("word-piece", "word " * 6 * WINDOW)
    assert (reading.exact, characters, tokens(reading.encoding)) == (True, 30 * WINDOW, 6 * WINDOW + 2)


def test_what_is_cut_off_in_front_is_read_from_the_end() -> None:
    tokenizer = uncut("byte-level")
    tokenizer.enable_truncation(WINDOW, direction="left")
    try:
        [reading] = WindowReader(tokenizer)(["some words, and more. " * 1000], "")
        [expected] = tokenizer.encode_batch_fast(["some words, and more. " * 1000])
    finally:
        tokenizer.no_truncation()
    assert (reading.exact, reading.encoding.ids) == (True, expected.ids)


def test_a_tokenizer_that_cuts_nothing_reads_all() -> None:
    [reading] = WindowReader(uncut("word-piece"))(["word " * 10_000], "")
    assert (reading.exact, len(reading.encoding.ids)) == (True, 10_002)


def test_half_a_surrogate_pair_behind_the_window_is_still_an_error() -> None:
    with pytest.raises(TypeError):
        read("word-piece", "word " * 10_000 + "\ud800")


def test_few_tokens_in_front_of_a_seam_are_not_enough() -> None:
    text = "\x00" * 10_000 + " word. " * 10_000
    reading, characters = read("word-piece", "b. " + text)
    [expected] = made("word-piece").encode_batch_fast(["b. " + text])
    assert (reading.encoding.ids, bool(reading.encoding.overflowing)) == (expected.ids, True)
    assert characters < len(text)


def test_an_added_token_over_a_seam_takes_the_seam_away() -> None:
    plain, odd = find_seam(made("byte-level")), find_seam(made("byte-level with odd added tokens"))
    assert plain is not None
    assert odd is not None
    assert [bool(re.search(plain, text)) for text in ("x.", "x\n", "x, ")] == [True, True, True]
    assert [bool(re.search(odd, text)) for text in ("x.", "x\n", "x, ")] == [False, False, False]
    assert [bool(re.search(odd, text)) for text in ("x;", "x\t", "x ")] == [True, True, True]
