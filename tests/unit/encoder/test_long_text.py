"""Texts far above the window: tokenized as if they were read to their end, and not read to their end."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tasks.encoder.locate import locate
from tasks.encoder.long_text import WindowReader, find_seam
from tests.made_tokenizers import ENDS, byte_level, trained, unigram
from tests.thorough import some
from worker_config.settings import DEFAULT_MODEL

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BLANKS = Regex(" {2,}")


def word_piece() -> Tokenizer:
    return Tokenizer.from_file(str(locate(DEFAULT_MODEL) / "tokenizer.json"))


def words(normalizer: Any, splitter: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=20))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    trained(tokenizer, trainers.WordPieceTrainer(vocab_size=200, special_tokens=ENDS, show_progress=False))
    # Not where an added token begins with a blank: the library panics where both want the same blank.
    tokenizer.add_special_tokens([AddedToken("<sep>", rstrip=True)])
    return tokenizer


def together(normalizer: Any, splitter: Any) -> Tokenizer:
    """As in Llama 2 and Gemma: trained on words, and reads a text as one piece; other characters are bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[*ENDS, *byte_tokens], show_progress=False)
    trained(tokenizer, trainer)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.add_tokens(["\u2581\u2581", "\u2581\u2581\u2581", "\n\n"])
    return tokenizer


def with_added_tokens(tokenizer: Tokenizer, *tokens: str | AddedToken) -> Tokenizer:
    tokenizer.add_tokens(list(tokens))
    return tokenizer


def split(pattern: str) -> Any:
    behind = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), behind])


def as_xlm_roberta() -> Any:
    return normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(left=False), normalizers.Replace(_BLANKS, " ")]
    )


WITH_SEAMS: Mapping[str, Callable[[], Tokenizer]] = {
    "word-piece": word_piece,
    "word-piece with added tokens of punctuation": lambda: with_added_tokens(
        word_piece(), "fox.", AddedToken("[x]", single_word=True), AddedToken("!y!", lstrip=True, rstrip=True)
    ),
    "words, punctuation replaced": lambda: words(
        normalizers.Sequence([normalizers.Replace("-", ""), normalizers.BertNormalizer()]),
        pre_tokenizers.BertPreTokenizer(),
    ),
    "words, accents kept": lambda: words(
        normalizers.BertNormalizer(lowercase=False, strip_accents=False), pre_tokenizers.BertPreTokenizer()
    ),
    "byte-level": lambda: byte_level(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "qwen": lambda: byte_level(normalizers.NFC(), split(_QWEN)),
    "unigram": lambda: unigram(
        as_xlm_roberta(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    ),
}


class _InPython:
    def pre_tokenize(self, pieces: Any) -> None:
        """Leaves the text as it is."""


WITHOUT_SEAMS: Mapping[str, Callable[[], Tokenizer]] = {
    "words together, as in gemma": lambda: together(
        normalizers.Replace(" ", "\u2581"), pre_tokenizers.Split(" ", "merged_with_previous")
    ),
    "bpe with merges of several words": lambda: byte_level(normalizers.Replace(" ", "\u2581"), None),
    "an unknown pattern": lambda: byte_level(None, split(r"\w+ \w+|.")),
    "an unknown normalizer": lambda: words(normalizers.Replace(Regex("a b"), "c"), pre_tokenizers.BertPreTokenizer()),
    "a pre-tokenizer in Python": lambda: byte_level(None, pre_tokenizers.PreTokenizer.custom(_InPython())),
}


WINDOW = 8
ROUTINE = ("word-piece", "words, accents kept", "byte-level", "unigram", "words together, as in gemma")
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
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.characters = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode_batch_fast(self, texts: list[str]) -> Any:
        self.characters += sum(map(len, texts))
        return self._tokenizer.encode_batch_fast(texts)


@cache
def made(kind: str) -> Tokenizer:
    tokenizer = {**WITH_SEAMS, **WITHOUT_SEAMS}[kind]()
    tokenizer.no_padding()
    tokenizer.enable_truncation(WINDOW)
    return tokenizer


def read(kind: str, text: str) -> tuple[Any, bool, int]:
    counted = Counted(made(kind))
    [(encoding, exact)] = WindowReader(counted)([text], "")
    return encoding, exact, counted.characters


def tokens(encoding: Any) -> int:
    return len(encoding.ids) + sum(len(piece) - 2 for piece in encoding.overflowing)


@pytest.mark.untraced  # what runs here is covered without it, and is slower when it is traced
@pytest.mark.parametrize("kind", some([*WITH_SEAMS, *WITHOUT_SEAMS], *ROUTINE))
@EXAMPLES
@given(texts=st.lists(TEXTS, min_size=1, max_size=3), prompt=PROMPTS)
def test_texts_have_the_tokens_that_they_have_when_they_are_read_to_their_end(
    kind: str, texts: list[str], prompt: str
) -> None:
    readings = WindowReader(made(kind))(texts, prompt)
    for (encoding, exact), expected in zip(
        readings, made(kind).encode_batch_fast([prompt + text for text in texts]), strict=True
    ):
        assert (encoding.ids, encoding.type_ids) == (expected.ids, expected.type_ids)
        assert bool(encoding.overflowing) == bool(expected.overflowing)
        assert tokens(encoding) == tokens(expected) if exact else WINDOW < tokens(encoding) <= tokens(expected)


@pytest.mark.parametrize("unit", ["some words, and more. ", CYRILLIC])
@pytest.mark.parametrize("kind", WITH_SEAMS)
def test_of_a_long_text_no_more_is_read_than_the_window_takes(kind: str, unit: str) -> None:
    encoding, exact, characters = read(kind, unit * LARGE)
    assert (exact, len(encoding.ids)) == (False, WINDOW)
    assert characters < 300 * WINDOW


@pytest.mark.parametrize("kind", WITHOUT_SEAMS)
def test_a_tokenizer_of_unknown_kind_reads_all(kind: str) -> None:
    assert find_seam(made(kind)) is None
    _, exact, characters = read(kind, "some words, and more. " * 1000)
    assert (exact, characters) == (True, 22_000)


def test_few_tokens_in_front_of_a_seam_are_not_enough() -> None:
    text = "b. " + "\x00" * 10_000 + " word. " * 10_000
    encoding, _, characters = read("word-piece", text)
    [expected] = made("word-piece").encode_batch_fast([text])
    assert (encoding.ids, bool(encoding.overflowing)) == (expected.ids, True)
    assert characters < 2 * len(text)


@pytest.mark.parametrize("added", ["x\u00a0 y", "over the", "\u6f22", "Dog\n"])
def test_an_added_token_over_a_seam_takes_the_seams_away(added: str) -> None:
    tokenizer = WITH_SEAMS["word-piece"]()
    assert find_seam(tokenizer) is not None
    tokenizer.add_tokens([added])
    assert find_seam(tokenizer) is None


def test_what_is_cut_off_in_front_is_read_from_the_end_and_half_a_surrogate_pair_is_an_error() -> None:
    tokenizer = WITH_SEAMS["byte-level"]()
    tokenizer.enable_truncation(WINDOW, direction="left")
    [(encoding, exact)] = WindowReader(tokenizer)(["some words, and more. " * 1000], "")
    [expected] = tokenizer.encode_batch_fast(["some words, and more. " * 1000])
    assert (exact, encoding.ids) == (True, expected.ids)
    with pytest.raises(TypeError):
        read("word-piece", "word " * 10_000 + "\ud800")
