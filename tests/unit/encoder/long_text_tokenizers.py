"""Tokenizers of each kind that embedding models have, small enough to be made here, with and without seams."""

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tasks.encoder.locate import locate
from worker_config.settings import DEFAULT_MODEL

_TRAINING = [
    "the quick brown fox jumps over the lazy dog.",
    "hello there, how are you? I'm fine, we'll see; they've 12 of 345",
    "le c\u0153ur d\u00e9\u00e7u; \u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
    "\u6f22\u5b57\u3002\u4eee\u540d\u3001\u4ea4\u3058\u308a \ud55c\uad6d\uc5b4",
    "a  b   c\n\nd\te.\n",
] * 10
_ENDS = ["<s>", "</s>", "<unk>"]
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = _QWEN.replace(r"\p{N}| ?", r"\p{N}{1,3}| ?")
_BLANKS = Regex(" {2,}")


def _word_piece() -> Tokenizer:
    return Tokenizer.from_file(str(locate(DEFAULT_MODEL) / "tokenizer.json"))


def _byte_level(normalizer: Any, splitter: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=_ENDS,
        show_progress=False,
    )
    return _trained(tokenizer, trainer)


def _words(normalizer: Any, splitter: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=20))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    _trained(tokenizer, trainers.WordPieceTrainer(vocab_size=200, special_tokens=_ENDS, show_progress=False))
    # Not where an added token begins with a blank: the library panics where both want the same blank.
    tokenizer.add_special_tokens([AddedToken("<sep>", rstrip=True)])
    return tokenizer


def _unigram(normalizer: Any, splitter: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=_ENDS, unk_token="<unk>", show_progress=False)
    return _trained(tokenizer, trainer)


def _together(normalizer: Any, splitter: Any) -> Tokenizer:
    """As in Llama 2 and Gemma: trained on words, and reads a text as one piece; other characters are bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[*_ENDS, *byte_tokens], show_progress=False)
    _trained(tokenizer, trainer)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.add_tokens(["\u2581\u2581", "\u2581\u2581\u2581", "\n\n"])
    return tokenizer


def _with_whole_pieces(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.model.ignore_merges = True
    return tokenizer


def _apart_in_training(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    return tokenizer


def _trained(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:
    tokenizer.train_from_iterator(_TRAINING, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(end, tokenizer.token_to_id(end)) for end in ("<s>", "</s>")]
    )
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def _with_odd_added_tokens(tokenizer: Tokenizer, *more: str | AddedToken) -> Tokenizer:
    tokenizer.add_special_tokens(["[x,y]", "<|end|>"])
    tokenizer.add_tokens(["fox.", AddedToken("over", single_word=True), AddedToken("\u6f22", single_word=True), *more])
    return tokenizer


def _with_added_tokens(tokenizer: Tokenizer, *tokens: str | AddedToken) -> Tokenizer:
    tokenizer.add_tokens(list(tokens))
    return tokenizer


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _as_xlm_roberta() -> Any:
    return normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(left=False), normalizers.Replace(_BLANKS, " ")]
    )


WITH_SEAMS: Mapping[str, Callable[[], Tokenizer]] = {
    "word-piece": _word_piece,
    "word-piece with added tokens of punctuation": lambda: _with_added_tokens(
        _word_piece(), "fox.", AddedToken("[x]", single_word=True), AddedToken("!y!", lstrip=True, rstrip=True)
    ),
    "words, punctuation replaced": lambda: _words(
        normalizers.Sequence([normalizers.Replace("-", ""), normalizers.BertNormalizer()]),
        pre_tokenizers.BertPreTokenizer(),
    ),
    "words, accents kept": lambda: _words(
        normalizers.BertNormalizer(lowercase=False, strip_accents=False), pre_tokenizers.BertPreTokenizer()
    ),
    "words, all characters kept": lambda: _words(
        normalizers.BertNormalizer(clean_text=False, lowercase=False, strip_accents=False),
        pre_tokenizers.BertPreTokenizer(),
    ),
    "words, digits alone": lambda: _words(
        normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
        pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]),
    ),
    "byte-level": lambda: _byte_level(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "byte-level with a blank in front": lambda: _byte_level(None, pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "qwen": lambda: _byte_level(normalizers.NFC(), _split(_QWEN)),
    "llama": lambda: _byte_level(None, _split(_LLAMA)),
    "unigram": lambda: _unigram(
        _as_xlm_roberta(), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    ),
    "unigram as in albert": lambda: _unigram(
        normalizers.Sequence(
            [
                normalizers.Replace("``", '"'),
                normalizers.Replace("''", '"'),
                normalizers.NFKD(),
                normalizers.StripAccents(),
                normalizers.Lowercase(),
                normalizers.Replace(_BLANKS, " "),
            ]
        ),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
    ),
    "unigram as in t5": lambda: _unigram(
        normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(_BLANKS, "\u2581")]), pre_tokenizers.Metaspace()
    ),
}


class _InPython:
    def pre_tokenize(self, pieces: Any) -> None:
        """Leaves the text as it is."""


WITHOUT_SEAMS: Mapping[str, Callable[[], Tokenizer]] = {
    "word-piece with odd added tokens": lambda: _with_odd_added_tokens(_word_piece(), "Dog\n"),
    "words together, bpe": lambda: _together(
        normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None
    ),
    "words together, as in gemma": lambda: _together(
        normalizers.Replace(" ", "\u2581"), pre_tokenizers.Split(" ", "merged_with_previous")
    ),
    "words together, unigram": lambda: _apart_in_training(_unigram(_as_xlm_roberta(), pre_tokenizers.Metaspace())),
    "unigram with entries of several words": lambda: _unigram(None, pre_tokenizers.Metaspace(split=False)),
    "bpe with merges of several words": lambda: _byte_level(normalizers.Replace(" ", "\u2581"), None),
    "whole pieces before merges": lambda: _with_whole_pieces(
        _together(normalizers.Replace(" ", "\u2581"), None),
    ),
    "no pre-tokenizer": lambda: _byte_level(None, None),
    "an unknown pattern": lambda: _byte_level(None, _split(r"\w+ \w+|.")),
    "an unknown pre-tokenizer": lambda: _byte_level(None, pre_tokenizers.UnicodeScripts()),
    "an unknown normalizer": lambda: _words(normalizers.Replace(Regex("a b"), "c"), pre_tokenizers.BertPreTokenizer()),
    "a normalizer that joins": lambda: _words(normalizers.Replace("a b", "c"), pre_tokenizers.BertPreTokenizer()),
    "a pre-tokenizer in Python": lambda: _byte_level(None, pre_tokenizers.PreTokenizer.custom(_InPython())),
}
