"""The values that go into and come out of the model. All frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Float32Array: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """What changes the vector of a text.

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


@dataclass(frozen=True, slots=True)
class TextItem:
    """One text to encode."""

    text: str
    options: EncodeOptions = field(default_factory=EncodeOptions)


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """Why one text has no vector. `code` is stable; `message` says what to do and holds nothing of the text.

    Codes: `invalid_dimensions`, `unknown_prompt`, `input_too_long`, `out_of_memory`, `encoding_failed`,
    `non_finite_vector`.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class ItemVector:
    """What became of one text: a vector or an error, never both.

    Attributes:
        vector: float32 [d], with d the model's dimension or the requested one; None when there is an error.
        tokens: tokens that went through the model, prompt and special tokens included; 0 when there is an error.
        truncated: the text was cut at the model's maximum.
        error: None when there is a vector.
        cached: the vector was known; the model did nothing for it.
    """

    vector: Float32Array | None
    tokens: int
    truncated: bool
    error: ItemFailure | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model says of itself.

    Attributes:
        model: hub id or folder name it was loaded from.
        revision: 12 hexadecimal digits (of the hub's commit, or of the files' content), or `fake`.
        dimension: length of its vectors.
        max_tokens: longest input, prompt and special tokens included.
        prompts: names that `prompt_name` may take.
        device: `cpu`, `cuda:0`, …
        compute: `openvino`, `torch` or `fake`.
        precision: `float32`, `float16` or `bfloat16`.
    """

    model: str
    revision: str
    dimension: int
    max_tokens: int
    prompts: tuple[str, ...]
    device: str
    compute: str
    precision: str


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
        padded_tokens: longest length times number of texts, summed over them.
        tokens: the part of `padded_tokens` that was not padding.
    """

    forward_passes: int
    padded_tokens: int
    tokens: int
