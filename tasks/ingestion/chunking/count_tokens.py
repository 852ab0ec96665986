"""Tokens as the model will count them, by its own tokenizer and without the model."""

from collections.abc import Sequence
from functools import lru_cache

from tokenizers import Tokenizer

from tasks.document_error import DocumentFailed
from tasks.errors import NotReady, NotStored
from tasks.model import Model
from tasks.storage.model_files import read_prompts, read_tokenizer
from tasks.storage.storage import Storage

_RETRY_S = 5
_FEW = 16
"""Texts for which other threads are not worth waking."""


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
    """

    def __init__(self, tokenizer_json: bytes, prompt: str = "") -> None:
        self._tokenizer = _parsed(tokenizer_json)
        self._prompt = prompt
        self.overhead = self.count("")

    def count(self, text: str) -> int:
        """Tokens of a text as the model reads it: special tokens and prompt included, nothing cut.

        Raises:
            DocumentFailed: the text is not valid Unicode.
        """
        return self._counts([self._prompt + text], special=True)[0]

    def parts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text alone, without special tokens and prompt; raises like `count`.

        Those of a text are about the sum of those of its parts: what lies between two parts belongs to neither.
        """
        return self._counts(texts, special=False)

    def _counts(self, texts: Sequence[str], *, special: bool) -> list[int]:
        try:
            if len(texts) <= _FEW:
                return [len(self._tokenizer.encode(text, add_special_tokens=special)) for text in texts]
            return list(map(len, self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)))
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


def _not_ready(entry: Model) -> NotReady:
    return NotReady(
        f"The tokenizer of {entry.id} is not in the storage yet. A worker of this model that can reach the storage "
        "(EMBEDQ_STORAGE_URL) brings it.",
        retry_after_s=_RETRY_S,
    )
