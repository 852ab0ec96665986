"""Tiny random models, saved as sentence-transformers saves them: two layers, 32 wide, a vocabulary of letters."""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from tests.heavy import sentence_modules, sentence_transformers, torch, transformers

MAX_TOKENS = 24
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz:.,!?"


class TinyModel(Enum):
    """What each one is for."""

    CLS = auto()
    """First token, raw output of any length."""
    DENSE = auto()
    """Mean, projected to 8 components, normalised."""
    PROMPTED = auto()
    """Mean over all tokens, with prompts, one of them the default."""
    INSTRUCTED = auto()
    """Mean over the tokens behind the prompt."""
    CAUSAL = auto()
    """Causal with rotary positions, last token, padding on the left."""


def save(kind: TinyModel, folder: Path) -> Path:
    """The folder, with a model of this kind in it."""
    torch.manual_seed(kind.value)
    _save_transformer(folder / "transformer", causal=kind is TinyModel.CAUSAL)
    transformer = sentence_modules.Transformer(str(folder / "transformer"), max_seq_length=MAX_TOKENS)
    prompted = kind in {TinyModel.PROMPTED, TinyModel.INSTRUCTED}
    model = sentence_transformers.SentenceTransformer(
        modules=[transformer, *_rest(kind)],
        device="cpu",
        prompts={"query": "query: ", "passage": "a passage: "} if prompted else None,
        default_prompt_name="passage" if kind is TinyModel.PROMPTED else None,
    )
    model.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def _rest(kind: TinyModel) -> list[torch.nn.Module]:
    if kind is TinyModel.CLS:
        return [sentence_modules.Pooling(32, "cls")]
    if kind is TinyModel.DENSE:
        return [sentence_modules.Pooling(32, "mean"), sentence_modules.Dense(32, 8), sentence_modules.Normalize()]
    if kind is TinyModel.CAUSAL:
        return [sentence_modules.Pooling(32, "lasttoken")]
    return [sentence_modules.Pooling(32, "mean", include_prompt=kind is TinyModel.PROMPTED)]


def _save_transformer(folder: Path, *, causal: bool) -> None:
    words = [*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), _SPECIAL, strict=True))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side="left" if causal else "right",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **names,
    )
    fast.save_pretrained(str(folder))
    _network(len(words), causal=causal).save_pretrained(str(folder))


def _network(words: int, *, causal: bool) -> transformers.PreTrainedModel:
    # Large weights: with the default ones random vectors are all alike, and every comparison would pass.
    sizes: dict[str, Any] = {
        "vocab_size": words,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.5,
    }
    if causal:
        return transformers.Qwen2Model(transformers.Qwen2Config(num_key_value_heads=4, **sizes))
    return transformers.BertModel(transformers.BertConfig(**sizes))
