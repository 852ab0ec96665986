"""What an encoder is: its values (all frozen), its methods, and what can go wrong with it as a whole.

`transformer.py` and `fake.py` implement it. What goes wrong with one text is an `TextError`, not an exception.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from tasks.item import Options
from tasks.model import Model
from tasks.unshown import unshown

Float32Array: TypeAlias = npt.NDArray[np.float32]
Int64Array: TypeAlias = npt.NDArray[np.int64]


@unshown("text")
class Text(NamedTuple):
    """One text to encode, and what is asked of its vector."""

    text: str
    options: Options = Options()


@dataclass(frozen=True, slots=True)
class TextRules:
    """How a model's texts become tokens.

    Attributes:
        tokenizer: JSON of the library `tokenizers`; it neither cuts nor pads.
        prompts: what is put before a text, by prompt name.
        default_prompt: the name that counts where none is given; None: nothing is put before such texts.
    """

    tokenizer: bytes
    prompts: Mapping[str, str]
    default_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class EncodeStats:
    """What the model did for one call; passes that failed and were split are counted too.

    Attributes:
        forward_passes: micro-batches sent through the model.
        padded_tokens: tokens that they computed, padding included.
        tokens: the part of `padded_tokens` that was not padding.
    """

    forward_passes: int
    padded_tokens: int
    tokens: int

    def __add__(self, other: Self) -> Self:
        """Of both calls together."""
        return type(self)(
            self.forward_passes + other.forward_passes,
            self.padded_tokens + other.padded_tokens,
            self.tokens + other.tokens,
        )


@unshown("features")
class Tokens(NamedTuple):
    """One text as the model will see it, already cut at the model's maximum.

    Attributes:
        features: per-token rows of equal length (`input_ids`, `token_type_ids`), not padded.
        length: tokens after cutting, prompt and special tokens included.
        full_length: tokens before cutting.
        full_length_exact: False: of a beginning of the text that is longer than the maximum; all of it has as many or
            more.
        prompt_length: leading tokens that pooling leaves out; None when it leaves none out. Only texts with the same
            value may share a forward pass.
    """

    features: Mapping[str, Sequence[int]]
    length: int
    full_length: int
    full_length_exact: bool = True
    prompt_length: int | None = None

    @property
    def truncated(self) -> bool:
        """Whether the text was cut."""
        return self.full_length > self.length


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the texts of a pass are in its rows.

    Attributes:
        rows: of the pass.
        width: of each, in tokens.
        starts: int64 [texts], the place of each text's first token, counted through all rows.
        shared: whether a row may hold several texts.
    """

    rows: int
    width: int
    starts: Int64Array
    shared: bool = False

    @property
    def padded_tokens(self) -> int:
        """That the pass computes."""
        return self.rows * self.width


class Encoder(Protocol):
    """A loaded model."""

    @property
    def info(self) -> Model:
        """What it is."""
        ...

    @property
    def streams(self) -> int:
        """How many threads may use it at the same time, and should, to make the most of the device."""
        ...

    @property
    def row_widths(self) -> tuple[int, ...]:
        """Of rows that texts share in a pass, in tokens, ascending; none: each text has a row of its own."""
        ...

    @property
    def needs_tokens(self) -> bool:
        """Whether a text without tokens has no vector. A static model gives it a vector of zeros."""
        ...

    @property
    def reference_texts(self) -> tuple[str, ...]:
        """The texts of the self-test: `self_test.TEXTS` first, then those that its tokenizer makes interesting."""
        ...

    @property
    def reference(self) -> Float32Array:
        """Vectors of `reference_texts`, float32 [n, dimension], by the plainest way this model has."""
        ...

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[Tokens]:
        """The texts behind the prompt of that name (None: the model's default), cut at the maximum, in input order.

        `prompt_name` is one of `info.prompts`; the caller has checked.
        """
        ...

    def text_rules(self) -> TextRules:
        """How texts become tokens, for those who count them elsewhere. Takes a second where the vocabulary is large."""
        ...

    def forward(self, texts: Sequence[Tokens], layout: Layout) -> Float32Array:
        """One forward pass: float32 [n, dimension], rows in input order, as the model's own modules leave them.

        Raises:
            EncoderBroken: no further pass can succeed in this process.
            Exception: whatever the library raises for this batch; the caller splits it and tries again.
        """
        ...


class ModelLoadError(Exception):
    """The model cannot be served. The message names the setting or file and the fix; the worker exits with code 78."""


class WayUnusable(ModelLoadError):
    """One way of computing cannot serve this model; another one may."""


class EncoderBroken(Exception):
    """The device is lost for this process (CUDA after an illegal access, say): every further pass would fail.

    No text is to blame, so nothing may be committed; the process must be replaced.
    """


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is the machine's or the device's memory running out, without importing torch to ask."""
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError is a RuntimeError; the CPU allocator raises a plain one that says "can't allocate memory",
    # and OpenVINO one that says "Failed to allocate".
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(said in text for said in ("out of memory", "allocate"))
