"""Tokenizers of each kind that embedding models have, small enough to be made here."""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tasks.encoder.fake import FakeEncoder
from tasks.encoder.locate import locate
from worker_config.settings import DEFAULT_MODEL

_TRAINING = ["the quick brown fox jumps over the lazy dog", "hello there, how are you?", "le cœur déçu"] * 20


def _word_piece() -> bytes:
    return Path(locate(DEFAULT_MODEL), "tokenizer.json").read_bytes()


def _fake() -> bytes:
    return FakeEncoder().text_rules().tokenizer


def _byte_level() -> bytes:
    """As GPT-2, RoBERTa and ModernBERT have it: the blank belongs to the word behind it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(_TRAINING, trainer)
    return _with_ends(tokenizer)


def _unigram() -> bytes:
    """As SentencePiece makes them, words not separated: `a  b` and what lies around it may be one piece."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_TRAINING, trainer)
    return _with_ends(tokenizer)


def _with_ends(tokenizer: Tokenizer) -> bytes:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(end, tokenizer.token_to_id(end)) for end in ("<s>", "</s>")]
    )
    text: str = tokenizer.to_str()
    return text.encode()


TOKENIZERS = {"word-piece": _word_piece(), "fake": _fake(), "byte-level": _byte_level(), "unigram": _unigram()}
