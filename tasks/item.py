"""One text of a task: what is asked of it, its estimated cost, and its vector or why it has none."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import orjson

BYTES_PER_TOKEN = 4
FLOAT32_BYTES = 4
"""Of one component of a vector, everywhere: in Redis, in storage and in answers."""
DEFAULT_RATE = 4000.0
"""Estimated tokens per second to assume of a model for which no worker has ever reported a speed."""


class Options(NamedTuple):
    """What changes the vector of a text. Equal options and equal texts give equal vectors.

    Attributes:
        prompt_name: one of the model's prompts; None: the model's default prompt, if it has one.
        dimensions: keep only so many leading components (Matryoshka); None: all.
        normalize: scale the result to unit length. False: as the model's own modules leave it.
        truncate: cut a text above the model's maximum. False: such a text is refused.
    """

    prompt_name: str | None = None
    dimensions: int | None = None
    normalize: bool = True
    truncate: bool = True

    def to_text(self) -> str:
        """Compact form for the task hash: only what differs from the default; '' for the defaults."""
        defaults = self._field_defaults
        changed = {name: value for name, value in self._asdict().items() if value != defaults[name]}
        return orjson.dumps(changed).decode() if changed else ""

    def unfit(self, dimension: int, prompts: Collection[str]) -> Literal["dimensions", "prompt_name"] | None:
        """Which of these a model cannot serve that has such vectors and prompts; None: it serves all of them."""
        if self.dimensions is not None and not 1 <= self.dimensions <= dimension:
            return "dimensions"
        return "prompt_name" if self.prompt_name is not None and self.prompt_name not in prompts else None

    @classmethod
    def from_text(cls, text: str | bytes) -> Self:
        """Inverse of `to_text`; options of a newer version are ignored."""
        if not text:
            return cls()
        return cls(**{name: value for name, value in orjson.loads(text).items() if name in cls._fields})


@dataclass(frozen=True, slots=True)
class TextError:
    """Why one text has no vector. `code` is stable; `message` says what to do and holds nothing of the text.

    Codes of the model: `invalid_dimensions`, `unknown_prompt`, `input_too_long`, `no_tokens`, `out_of_memory`,
    `encoding_failed`, `non_finite_vector`.
    """

    code: str
    message: str

    @property
    def refused(self) -> bool:
        """Whether the caller can put it right by sending something else: 400 for a synchronous call instead of 422."""
        return self.code in {"input_too_long", "invalid_dimensions"}


class Vector(NamedTuple):
    """What became of one text: a vector or an error, never both.

    Attributes:
        vector: float32 [d], with d the model's dimension or the requested one; None when there is an error.
        tokens: tokens that went through the model, prompt and special tokens included; 0 when there is an error.
        truncated: the text was cut at the model's maximum.
        error: None when there is a vector.
    """

    vector: npt.NDArray[np.float32] | None
    tokens: int
    truncated: bool
    error: TextError | None = None

    @classmethod
    def failed(cls, error: TextError) -> Self:
        """A text without a vector."""
        return cls(None, 0, truncated=False, error=error)


UNLIMITED_TOKENS = 2**31 - 1
"""`max_tokens` of a model that cuts no text: an integer as of all others, and more than any request can hold."""


def size_bytes(text: str) -> int:
    """Bytes of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def cost(text: str, max_tokens: int) -> int:
    """Estimated tokens of a text: a quarter of its bytes in UTF-8, at least 1, at most what the model reads."""
    return max(1, min(-(-size_bytes(text) // BYTES_PER_TOKEN), max_tokens))
