"""Tokens as the model will count them, by its own tokenizer and without the model."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson
from tokenizers import Tokenizer

from tasks.document_error import DocumentFailed
from tasks.errors import NotReady, NotStored
from tasks.model import Model
from tasks.storage.model_files import read_prompts, read_tokenizer
from tasks.storage.storage import Storage

_RETRY_S = 5
_NORMALIZERS = {None, "BertNormalizer", "Lowercase"}
_WORD_SPLITTERS = {"BertPreTokenizer", "WhitespaceSplit"}
_WITHIN_WORDS = _WORD_SPLITTERS | {"Punctuation", "Digits", "Split"}
_BLANK = " \n\t\r"
"""White space in everybody's eyes: BERT's normalizer deletes the form feed, and joins the words around it."""
_ODD_SPACE = re.compile(r"[^\S \n\t\r]")
_FEW = 16
"""Texts for which other threads are not worth waking."""
_KEPT_WORD_CHARS = 64
_KEPT_WORDS = 100_000
"""About 10 MB. Of prose, most words have been seen before: that makes counting five times as fast as tokenizing."""


def load_tokenizer(storage: Storage, entry: Model) -> bytes:
    """The tokenizer that the model's worker left in the storage, for a `TokenCounter`.

    Raises:
        NotReady: it is not there yet; a worker of this model brings it.
        StorageUnavailable: it does not answer now.
    """
    try:
        return read_tokenizer(storage, entry.revision)
    except NotStored as error:
        raise _not_ready(entry) from error


def load_prompt(storage: Storage, entry: Model, prompt_name: str | None) -> str:
    """What the model puts before each text under this name (None: its default, if it has one). Raises like the above.

    `prompt_name` is one of `entry.prompts`; the caller has checked.
    """
    try:
        return read_prompts(storage, entry.revision).text(prompt_name)
    except NotStored as error:
        raise _not_ready(entry) from error


class TokenCounter:
    """Counts tokens.

    Args:
        tokenizer_json: of the library `tokenizers`.
        prompt: that the model will read before each text.

    Attributes:
        overhead: tokens around every text: special tokens and prompt.
        adds_up: tokens of a text are those of its parts plus `overhead`, wherever it is divided at a `blank`. So it is
            when words are tokenized one by one, as in BERT. Most other tokenizers take the blank into the word.
    """

    def __init__(self, tokenizer_json: bytes, prompt: str = "") -> None:
        self._tokenizer = _parsed(tokenizer_json)
        self._prompt = prompt
        self._words: dict[str, int] = {}
        self.overhead = self._with_overhead("")
        self.adds_up = _takes_words_alone(tokenizer_json) and (not prompt or prompt[-1] in _BLANK)

    def count(self, text: str) -> int:
        """Tokens of a text as the model reads it: special tokens and prompt included, nothing cut.

        Raises:
            DocumentFailed: the text is not valid Unicode.
        """
        return self.overhead + self._sum(text) if self.adds_up else self._with_overhead(text)

    def parts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, without special tokens and prompt; raises like `count`."""
        if self.adds_up:
            return [self._sum(text) for text in texts]
        return self._alone(texts)

    def _with_overhead(self, text: str) -> int:
        return len(_encoded(self._tokenizer, [self._prompt + text], special=True)[0])

    def _alone(self, texts: Sequence[str]) -> list[int]:
        return list(map(len, _encoded(self._tokenizer, texts, special=False)))

    def _sum(self, text: str) -> int:
        if _ODD_SPACE.search(text):
            return self._alone([text])[0]
        words = text.split()
        try:
            return sum(map(self._words.__getitem__, words))
        except KeyError:
            return self._sum_of_new(words)

    def _sum_of_new(self, words: Sequence[str]) -> int:
        """Tokens of words of which some are not known yet."""
        counts = self._words
        missing = list(dict.fromkeys(word for word in words if word not in counts))
        fresh = dict(zip(missing, self._alone(missing), strict=True))
        tokens = sum([fresh[word] if word in fresh else counts[word] for word in words])
        if len(counts) > _KEPT_WORDS:
            counts = self._words = {}  # a new one: another thread may be reading
        counts.update((word, number) for word, number in fresh.items() if len(word) <= _KEPT_WORD_CHARS)
        return tokens


def blank(gap: str) -> bool:
    """Whether what lies between two parts keeps their tokens apart."""
    return any(character in gap for character in _BLANK)


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], *, special: bool) -> list[Any]:
    try:
        if len(texts) <= _FEW:
            return [tokenizer.encode(text, add_special_tokens=special) for text in texts]
        return tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
    except TypeError as error:  # what the library makes of a lone surrogate
        raise DocumentFailed(
            "invalid_unicode", "The text holds half of a surrogate pair. Write it as valid UTF-8.", "chunking"
        ) from error


@lru_cache(maxsize=2)  # one with a large vocabulary takes a second to read, and jobs of one page take about as long
def _parsed(tokenizer_json: bytes) -> Tokenizer:
    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _takes_words_alone(tokenizer_json: bytes) -> bool:
    tokenizer = orjson.loads(tokenizer_json)
    splitters = _kinds(tokenizer["pre_tokenizer"], "pretokenizers")
    return (
        all(kind in _NORMALIZERS for kind in _kinds(tokenizer["normalizer"], "normalizers"))
        and splitters[0] in _WORD_SPLITTERS
        and all(kind in _WITHIN_WORDS for kind in splitters)
        and not any(re.search(r"\s", token["content"]) for token in tokenizer["added_tokens"])
    )


def _kinds(step: dict[str, Any] | None, parts: str) -> list[str | None]:
    if step is None or (step["type"] == "Sequence" and not step[parts]):
        return [None]
    return [part["type"] for part in step[parts]] if step["type"] == "Sequence" else [step["type"]]


def _not_ready(entry: Model) -> NotReady:
    return NotReady(
        f"The tokenizer of {entry.id} is not in the storage yet. A worker of this model that can reach the storage "
        "(EMBEDQ_STORAGE_URL) brings it.",
        retry_after_s=_RETRY_S,
    )
