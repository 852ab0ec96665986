"""Small tokenizers of the kinds that embedding models have, trained here on a few sentences."""

from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

TRAINING = [
    "the quick brown fox jumps over the lazy dog.",
    "hello there, how are you? I'm fine, we'll see; they've 12 of 345",
    "le c\u0153ur d\u00e9\u00e7u; \u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
    "\u6f22\u5b57\u3002\u4eee\u540d\u3001\u4ea4\u3058\u308a \ud55c\uad6d\uc5b4",
    "a  b   c\n\nd\te.\n",
] * 10
ENDS = ["<s>", "</s>", "<unk>"]


def byte_level(normalizer: Any, splitter: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {"special_tokens": ENDS, "initial_alphabet": alphabet, "show_progress": False}
    return trained(tokenizer, trainers.BpeTrainer(vocab_size=450, **options))


def unigram(normalizer: Any, splitter: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=ENDS, unk_token="<unk>", show_progress=False)
    return trained(tokenizer, trainer)


def trained(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(end, tokenizer.token_to_id(end)) for end in ("<s>", "</s>")]
    )
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer
