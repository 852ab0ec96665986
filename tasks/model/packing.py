"""Several texts in one row of a forward pass, where a token sees the tokens of its own text alone.

A pass of one row for each text computes as much for every text as for its longest one. Claims of texts for which
somebody waits are small, so sorting helps little: of 32 queries it would be two or three passes, padded by an eighth,
and of 20 passages seven, none of them full. In rows of one width only the ends of rows are padded, passes are full, and
they have few different shapes.
"""

import logging
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

_log = logging.getLogger(__name__)

Int64Array = npt.NDArray[np.int64]

ROW_WIDTHS = (64, 256)
"""Of rows, in tokens: queries share narrow ones, passages wide ones (`widths_for`). Queries fill wide rows no better,
and attention computes more of what the mask throws away: in rows of 128 and 256, claims of 16 took 1.19 and 1.24 times
as long."""
_WIDER = (80, 96, 112, 128)
"""Widths that a few rows may have instead, in tokens: 5 queries of 18 fill one row of 96, and two of 64 not nearly."""
_FEW_ROWS = 4
"""Of narrow ones. More are filled well enough, and with one width passes have fewer different shapes."""
_SHAPE_TOKENS = 64
"""What another shape of a pass is taken to cost, in tokens. Passes of up to four wide rows have four shapes, and those
of a row for each text nearly always another one. So these must compute as much less: claims of 21 passages took 0.99 of
the time, and those of 128 0.98. Narrow rows have a dozen shapes, and gain nothing by it."""
LONE_WIDTHS = (24, 32)
"""Of the row of a text that is alone in a pass, in tokens: the first that is wide enough. Of a benchmark's queries 97 %
have 24 tokens at most and all have 32, so that the shape of a pass hardly ever changes. With 32 alone, more is computed
of padding than is saved where the processor is slow; a third width saves less than its changes of shape cost."""
_FIRST_POSITIONS = {"bert": 0, "roberta": 1, "xlm-roberta": 1, "camembert": 1}
"""By type of model, the position of a text's first token, counted from the padding token's number where it is not 0.
Only types without a window, a bias or a state that reaches from one text into the next."""
PACKED_INPUTS = ("text_numbers", "position_ids")
"""What `Packed.inputs` has instead of a mask."""
_CHECKED_LENGTHS = (7, 3, 12, 5, 9, 2, 11, 4)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the texts of a pass are in its rows.

    Attributes:
        rows: of the pass.
        width: of each, in tokens.
        starts: int64 [texts], the place of each text's first token, counted through all rows; read-only.
    """

    rows: int
    width: int
    starts: Int64Array

    def __post_init__(self) -> None:
        self.starts.flags.writeable = False  # others are given the same one

    @property
    def padded_tokens(self) -> int:
        """That the pass computes."""
        return self.rows * self.width


def widths_for(precision: str) -> tuple[int, ...]:
    """Of the rows that pay where passes compute in this precision.

    Wide ones do in bfloat16: there the fixed cost of a pass is a larger part of it. Beside a row for each
    passage, claims of 21 took 0.92 of the time and those of 128 0.97; in float32 1.02 and 0.99.
    """
    return ROW_WIDTHS if precision == "bfloat16" else ROW_WIDTHS[:1]


def layout(lengths: Sequence[int], row_widths: tuple[int, ...], lone_widths: tuple[int, ...] = ()) -> Layout:
    """Where texts of such lengths are in a pass: whichever computes the fewest tokens, and of equal ones the first.

    The choices are a row for each text, shared rows of the first of `row_widths` that takes the longest text, and where
    these are few and narrow, shared rows that are somewhat wider. A row for each text replaces wide rows only where it
    computes `_SHAPE_TOKENS` fewer. A text that is alone has a row of the first of `lone_widths` that is wide enough.

    Args:
        lengths: in tokens, of one text at least.
        row_widths: ascending; a text above all of them shares no row.
        lone_widths: ascending; a lone text above all of them has a row of its own length.
    """
    return _layout(tuple(lengths), row_widths, lone_widths)


def lone_width(length: int, lone_widths: Sequence[int]) -> int:
    """Of the row of a lone text."""
    return next((width for width in lone_widths if length <= width), length)


@lru_cache(maxsize=64)  # each pass asks twice: what it computes, and where its texts are
def _layout(lengths: tuple[int, ...], row_widths: tuple[int, ...], lone_widths: tuple[int, ...]) -> Layout:
    longest = max(lengths)
    if len(lengths) == 1:
        return Layout(1, lone_width(longest, lone_widths), np.zeros(1, dtype=np.int64))
    own = len(lengths) * longest
    row_tokens = next((width for width in row_widths if longest <= width), own)
    if row_tokens < own:
        width, rows = _cheapest(lengths, row_tokens)
        is_wide = row_tokens > row_widths[0]
        if len(rows) * width < own + (_SHAPE_TOKENS if is_wide else 0):
            return Layout(len(rows), width, _starts(rows, lengths, width))
    return Layout(len(lengths), longest, longest * np.arange(len(lengths)))  # of a static model 0 may be the longest


def _cheapest(lengths: Sequence[int], row_tokens: int) -> tuple[int, list[list[int]]]:
    """The width of shared rows that computes the fewest tokens, the narrowest of several, and these rows."""
    rows = fill(lengths, row_tokens)
    wider = [width for width in _WIDER if width > row_tokens] if len(rows) <= _FEW_ROWS else []
    choices = [(row_tokens, rows), *((width, fill(lengths, width)) for width in wider)]
    return min(choices, key=lambda choice: choice[0] * len(choice[1]))


def fill(lengths: Sequence[int], row_tokens: int, *, opens_above: int = 0) -> list[list[int]]:
    """Rows of indexes into `lengths`, each of `row_tokens` tokens at most; every index occurs once at most.

    The longest text comes first, into the row that it fills best. Rows that are left out leave the others as they are.

    Args:
        lengths: in tokens, each from 1 to `row_tokens`.
        row_tokens: of a row.
        opens_above: texts of up to so many tokens only take what others leave of their rows. Where that is too little,
            they are left out.
    """
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # what is left of each row, ascending
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        length = lengths[index]
        place = bisect_left(free, (length,))
        if place < len(free):
            left, row = free.pop(place)
        elif length <= opens_above:
            continue
        else:
            left, row = row_tokens, len(rows)
            rows.append([])
        rows[row].append(index)
        insort(free, (left - length, row))
    return rows


def _starts(rows: Sequence[Sequence[int]], lengths: Sequence[int], row_tokens: int) -> Int64Array:
    starts = np.zeros(len(lengths), dtype=np.int64)
    for number, row in enumerate(rows):
        at = number * row_tokens
        for index in row:
            starts[index] = at
            at += lengths[index]
    return starts


class Packed:
    """The inputs of a pass whose texts are laid out in rows, and the way back.

    Args:
        padded: int64 [texts, longest], the features of a row for each text, padded on the right.
        is_token: int64 of the same shape, 1 where there is a token.
        row_widths, lone_widths: as for `layout`.
        first: position of a text's first token.
    """

    def __init__(
        self,
        padded: dict[str, Int64Array],
        is_token: Int64Array,
        *,
        row_widths: tuple[int, ...],
        lone_widths: tuple[int, ...],
        first: int,
    ) -> None:
        texts, longest = is_token.shape
        self._place = place = layout(is_token.sum(axis=1).tolist(), row_widths, lone_widths)
        self.rearranged = (place.rows, place.width) != (texts, longest)
        """Whether its rows are others than those that came."""
        self.padded_tokens = place.padded_tokens
        """That the pass computes."""
        self._columns = np.arange(longest)
        positions = np.broadcast_to(first + self._columns, is_token.shape)
        named = {**padded, "position_ids": positions}
        if not self.rearranged:
            self.inputs = {**named, "position_ids": positions.copy(), "text_numbers": is_token}
            """int64 [rows, width]. `text_numbers` is 0 where there is no token."""
            return
        mask = is_token.astype(bool)
        to = (place.starts[:, None] + self._columns)[mask]
        named["text_numbers"] = np.broadcast_to(np.arange(1, texts + 1)[:, None], is_token.shape)
        self.inputs = {name: self._laid_out(values[mask], to) for name, values in named.items()}

    def _laid_out(self, values: Int64Array, to: Int64Array) -> Int64Array:
        flat = np.zeros(self._place.padded_tokens, dtype=np.int64)
        flat[to] = values
        return flat.reshape(self._place.rows, self._place.width)

    def unpack(self, embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Of [rows, width, d], the tokens of each text: [texts, longest, d]. Behind its last one anything may stand."""
        if not self.rearranged:
            return embeddings
        flat = embeddings.reshape(self._place.padded_tokens, embeddings.shape[2])
        # Less than `longest` may follow the last text.
        tokens: npt.NDArray[np.float32] = flat[np.minimum(self._place.starts[:, None] + self._columns, len(flat) - 1)]
        return tokens


def first_position(transformer: Any, names: Sequence[str]) -> int | None:
    """Of a text, where the texts of this transformer may share rows; None: they may not.

    Args:
        transformer: the library's module, float32 on the CPU.
        names: the inputs that it gets.
    """
    config = transformer.model.config
    offset = _FIRST_POSITIONS.get(getattr(config, "model_type", ""))
    if (
        offset is None
        or not {"input_ids", "attention_mask"} <= set(names) <= {"input_ids", "attention_mask", "token_type_ids"}
        or transformer.tokenizer.padding_side != "right"
        or getattr(config, "_attn_implementation", "") != "sdpa"  # which takes a mask of tokens by tokens as it is
    ):
        return None
    first: int = offset and offset + config.pad_token_id
    try:
        return first if _vectors_agree(transformer, names, first) else None
    except Exception as error:  # noqa: BLE001 - code of a model may raise anything; without shared rows it is served
        _log.info("texts share no rows: the model failed with %s", type(error).__name__)
        return None


def packed_features(input_ids: Any, text_numbers: Any, position_ids: Any, token_type_ids: Any = None) -> dict[str, Any]:
    """What the library's transformer takes of `Packed.inputs`, as tensors."""
    features = {
        "input_ids": input_ids,
        "attention_mask": text_numbers[:, None, :, None] == text_numbers[:, None, None, :],
        "position_ids": position_ids,
    }
    return features if token_type_ids is None else features | {"token_type_ids": token_type_ids}


def _vectors_agree(transformer: Any, names: Sequence[str], first: int) -> bool:
    import torch  # noqa: PLC0415 - the worker's parent imports this module and must stay without torch

    config, lengths = transformer.model.config, np.array(_CHECKED_LENGTHS)
    is_token = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    words = np.random.default_rng(0).integers(0, config.vocab_size - 1, is_token.shape)
    words[words == config.pad_token_id] += 1  # RoBERTa counts positions without it
    padded = {"input_ids": words * is_token}
    if "token_type_ids" in names:
        padded["token_type_ids"] = np.zeros_like(words)
    packed = Packed(padded, is_token, row_widths=ROW_WIDTHS, lone_widths=LONE_WIDTHS, first=first)
    output = transformer.module_output_name
    with torch.inference_mode():
        alone = {**padded, "attention_mask": is_token}
        expected = transformer({name: torch.from_numpy(value) for name, value in alone.items()})[output].numpy()
        tensors = {name: torch.from_numpy(value) for name, value in packed.inputs.items()}
        found = packed.unpack(transformer(packed_features(**tensors))[output].numpy())
    mask = is_token.astype(bool)
    return packed.rearranged and np.allclose(found[mask], expected[mask], rtol=1e-3, atol=1e-4)
