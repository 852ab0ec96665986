"""The interface of an encoder: tokens in, vectors out. `sentence.py` and `fake.py` implement it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tasks.model.types import Float32Array, ModelInfo, TextRules


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedText:
    """One text as the model will see it, already cut at the model's maximum.

    Attributes:
        features: per-token rows of equal length (`input_ids`, `attention_mask`, …), not padded.
        length: tokens after cutting, prompt and special tokens included.
        full_length: tokens before cutting.
        prompt_length: leading tokens that pooling leaves out; None when it leaves none out. Only texts with the same
            value may share a forward pass.
    """

    features: Mapping[str, Sequence[int]]
    length: int
    full_length: int
    prompt_length: int | None = None

    @property
    def truncated(self) -> bool:
        """Whether the text was cut."""
        return self.full_length > self.length


class Encoder(Protocol):
    """A loaded model."""

    @property
    def info(self) -> ModelInfo:
        """What it is."""
        ...

    @property
    def streams(self) -> int:
        """How many threads may use it at the same time, and should, to make the most of the device."""
        ...

    @property
    def reference(self) -> Float32Array:
        """Vectors of `self_test.TEXTS`, float32 [n, dimension], by the plainest way this model has."""
        ...

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[TokenizedText]:
        """The texts behind the prompt of that name (None: the model's default), cut at the maximum, in input order.

        `prompt_name` is one of `info.prompts`; the caller has checked.
        """
        ...

    def text_rules(self) -> TextRules:
        """How texts become tokens, for those who count them elsewhere. Takes a second where the vocabulary is large."""
        ...

    def forward(self, batch: Sequence[TokenizedText]) -> Float32Array:
        """One forward pass: float32 [n, dimension], rows in input order, as the model's own modules leave them.

        Raises:
            EncoderBroken: no further pass can succeed in this process.
            Exception: whatever the library raises for this batch; the caller splits it and tries again.
        """
        ...
