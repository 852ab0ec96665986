"""The texts of a pass behind one another in one row, without padding: attention runs within each text.

On a card torch has an attention for that (`torch.nn.attention.varlen`, for float16 and bfloat16). A pass then computes
the tokens that there are. It builds no mask either, for which transformers would wait until the card has done all that
it was asked before.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tasks.model.transfer import Transfer

_log = logging.getLogger(__name__)

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
Attention: TypeAlias = Callable[..., Any]
"""As `torch.nn.attention.varlen.varlen_attn`: query, key and value [tokens, heads, d], twice the int32 starts of the
texts and the end, twice the longest length; `scale` by name."""

COUNTED_WIDTHS = (256,)
"""By which passes are cut, as if texts of up to so many tokens shared rows of this width. A pass computes a little less
than is counted so: of passages of 40 to 200 tokens such rows were 98.9 % full."""
_NAME = "embedq_unpadded"
_STARTS, _PLACES, _TEXTS = "text_starts", "token_places", "unpadded_texts"
_MIN_COSINE = 0.999
_TRIED_LENGTHS = (7, 3, 12, 5, 9, 1, 11, 4)


@dataclass(frozen=True, slots=True, eq=False)
class _Texts:
    """What attention has to know of the texts in the row."""

    starts: Any
    longest: int
    attention: Attention


class UnpaddedTransformer:
    """Does what the transformer module does to `features`, of which it takes those that `lay_out` makes.

    Args:
        transformer: the library's module, on its device. From now on it can do both, with padding and without.
        attention: of that device.
        first: position of a text's first token.
    """

    row_widths = COUNTED_WIDTHS

    def __init__(self, transformer: Any, attention: Attention, first: int) -> None:
        from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415 - see `SentenceEncoder`
        from transformers.masking_utils import sdpa_mask  # noqa: PLC0415 - as above

        AttentionInterface.register(_NAME, _attend)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        transformer.model.set_attn_implementation(_NAME)
        if transformer.model_forward_params is not None:
            transformer.model_forward_params |= {_TEXTS}  # the library drops what it does not know
        self._transformer, self._attention, self._first = transformer, attention, first
        self.output: str = transformer.module_output_name

    def lay_out(self, padded: Arrays) -> Arrays:
        """The features of one row; those of a row for each text stay where a text has no token at all."""
        mask = padded["attention_mask"]
        lengths = mask.sum(axis=1)
        if not lengths.all():
            return padded
        is_token, columns = mask.astype(bool), np.arange(mask.shape[1])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        named = {**padded, "position_ids": np.broadcast_to(self._first + columns, mask.shape)}
        row = {name: values[is_token][None] for name, values in named.items()}
        # Behind its end a text has its own last token: of another one's, NaN would come through the mask of pooling.
        places = starts[:-1, None] + np.minimum(columns, lengths[:, None] - 1)
        return {**row, "attention_mask": mask, _STARTS: starts.astype(np.int32), _PLACES: places}

    def __call__(self, features: dict[str, Any]) -> dict[str, Any]:
        """`features` with the transformer's output, as [texts, longest, d]."""
        if _PLACES not in features:
            return dict(self._transformer(features))
        rest = dict(features)
        mask, starts, places = rest.pop("attention_mask"), rest.pop(_STARTS), rest.pop(_PLACES)
        texts = _Texts(starts, places.shape[1], self._attention)
        row = self._transformer({**rest, _TEXTS: texts})[self.output][0]
        return {**rest, "attention_mask": mask, self.output: row[places]}


def unpadded(transformer: Any, names: Sequence[str], first: int, transfer: Transfer) -> UnpaddedTransformer | None:
    """In the place of a transformer, if both give the same on its device; None: they do not.

    Args:
        transformer: the library's module, on its device and in its precision.
        names: the inputs that it gets.
        first: as `tasks.model.packing.first_position` found it.
        transfer: of its device, with an attention.
    """
    if transfer.attention is None or transformer.model.config.output_hidden_states:  # the latter are for other modules
        return None
    made = UnpaddedTransformer(transformer, transfer.attention, first)
    try:
        worst = _worst_cosine(made, names, transformer.model.config.vocab_size, transfer)
        reason = f"cosine {worst:.4f}"
    except Exception as error:  # noqa: BLE001 - a card may be too old, a head too wide; with padding they are served
        worst, reason = 0.0, type(error).__name__
    if worst >= _MIN_COSINE:
        return made
    _log.info("passes are padded: without padding the model gave another result (%s)", reason)
    transformer.model.set_attn_implementation("sdpa")
    return None


def _attend(module: Any, *arguments: Any, unpadded_texts: _Texts | None = None, **others: Any) -> tuple[Any, None]:
    """An attention of transformers: query, key and value [1, heads, tokens, d] in, [1, tokens, heads, d] out."""
    if unpadded_texts is None:
        from transformers import AttentionInterface  # noqa: PLC0415 - see `SentenceEncoder`

        padded: tuple[Any, None] = AttentionInterface()["sdpa"](module, *arguments, **others)
        return padded
    query, key, value = (tensor[0].transpose(0, 1) for tensor in arguments[:3])
    starts, longest = unpadded_texts.starts, unpadded_texts.longest
    scale = others["scaling"]
    return unpadded_texts.attention(query, key, value, starts, starts, longest, longest, scale=scale)[None], None


def _worst_cosine(made: UnpaddedTransformer, names: Sequence[str], vocabulary: int, transfer: Transfer) -> float:
    """Between the tokens of a few texts computed without padding and with it."""
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    lengths = np.array(_TRIED_LENGTHS)
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    words = np.random.default_rng(0).integers(vocabulary // 2, vocabulary, mask.shape)  # no padding among them
    padded: Arrays = {name: np.zeros_like(mask) for name in names} | {"input_ids": words * mask, "attention_mask": mask}

    def tokens(arrays: Arrays) -> Any:
        found = made({name: transfer.send(array) for name, array in arrays.items()})
        return found[made.output][transfer.send(mask).bool()].float()

    with torch.inference_mode():
        cosines = torch.nn.functional.cosine_similarity(tokens(padded), tokens(made.lay_out(padded)), dim=-1)
        return float(cosines.min())
