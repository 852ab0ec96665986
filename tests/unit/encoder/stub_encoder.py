"""An encoder that counts what it is asked, with faults by parameter."""

import sys
from collections.abc import Callable, Sequence

import numpy as np

from tasks.encoder.interface import Float32Array, Layout, TextRules, Tokens
from tasks.model import Model

Batch = Sequence[Tokens]


def no_fault(_batch: Batch) -> None:
    """The fault that never happens."""


class StubEncoder:
    """One token per character; the vector is (length, first character, 0, 1).

    Args:
        fault: called with every batch before it counts as done; raises what should go wrong.
        tokenizer_fault: the same with the texts, before they are tokenized.
        row: replaces the vector of every text.
        prompt_lengths: prompt name -> the `prompt_length` of its texts.
        counted: characters of a text that are counted.
        row_widths, needs_tokens: as in `Encoder`.
    """

    def __init__(
        self,
        *,
        fault: Callable[[Batch], None] = no_fault,
        tokenizer_fault: Callable[[Sequence[str]], None] = lambda _texts: None,
        row: Sequence[float] | None = None,
        prompt_lengths: dict[str | None, int | None] | None = None,
        max_tokens: int = 100,
        counted: int = sys.maxsize,
        streams: int = 1,
        row_widths: tuple[int, ...] = (),
        needs_tokens: bool = True,
    ) -> None:
        self.info = Model("stub", "0", 4, max_tokens, ("query", "document"), "cpu", "stub", "float32")
        self.reference: Float32Array = np.zeros((0, 4), dtype=np.float32)
        self.streams = streams
        self.row_widths = row_widths
        self.needs_tokens = needs_tokens
        self.reference_texts: tuple[str, ...] = ()
        self.batches: list[list[int]] = []
        """Lengths of every batch, failed ones included."""
        self.layouts: list[Layout] = []
        self.tokenized: list[str] = []
        self._fault = fault
        self._tokenizer_fault = tokenizer_fault
        self._row = row
        self._prompt_lengths = prompt_lengths or {}
        self._counted = counted

    def tokenize(self, texts: Sequence[str], prompt_name: str | None) -> list[Tokens]:
        self._tokenizer_fault(texts)
        self.tokenized += texts
        return [
            Tokens(
                features={"input_ids": [ord(c) for c in text[: self.info.max_tokens]]},
                length=min(len(text), self.info.max_tokens),
                full_length=min(len(text), self._counted),
                full_length_exact=len(text) <= self._counted,
                prompt_length=self._prompt_lengths.get(prompt_name),
            )
            for text in texts
        ]

    def text_rules(self) -> TextRules:
        return TextRules(b"{}", {"query": "", "document": ""})

    def forward(self, batch: Batch, layout: Layout) -> Float32Array:
        self.layouts.append(layout)
        self.batches.append([text.length for text in batch])
        self._fault(batch)
        rows = [self._row or (text.length, [*text.features["input_ids"], 0][0], 0, 1) for text in batch]
        return np.array(rows, dtype=np.float32)
