"""What was accepted and what became of it, in texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tasks.encoder.encode import encode
from tasks.encoder.fake import FakeEncoder
from tasks.encoder.interface import Text

DIMENSION = 32
"""Of the fake encoder's vectors in these trials."""
_PADDED_TOKENS = 2048


def expected_vectors(texts: Sequence[str]) -> list[Any]:
    """The vector of each text: the fake encoder gives the same on every machine."""
    outcomes, _ = encode(
        FakeEncoder(dimension=DIMENSION), [Text(text) for text in texts], max_padded_tokens=_PADDED_TOKENS
    )
    return [outcome.vector for outcome in outcomes]


@dataclass(slots=True)
class Account:
    """Counts of texts.

    Attributes:
        accepted: the caller was told that the text is taken.
        completed: its own vector came back.
        lost: accepted, and no vector came back.
        doubled: a vector that belongs to another text, or that came twice, or a call that was stored twice.
        again: told to be unknown, and therefore submitted again; what was submitted again counts as accepted once.
    """

    accepted: int = 0
    completed: int = 0
    lost: int = 0
    doubled: int = 0
    again: int = 0

    def add(self, texts: Sequence[str], vectors: Sequence[Any]) -> None:
        """Texts that were accepted together, and the vectors that came back, in the same order."""
        self.add_found(dict(enumerate(texts)), {n: [vector] for n, vector in enumerate(vectors)})

    def add_found(self, texts: Mapping[Any, str], found: Mapping[Any, Sequence[Any]]) -> None:
        """Texts that were accepted, and all vectors that came back for each."""
        self.accepted += len(texts)
        for (name, _), expected in zip(texts.items(), expected_vectors(list(texts.values())), strict=True):
            vectors = [vector for vector in found.get(name, ()) if not np.isnan(vector).any()]
            right = [np.array_equal(vector, expected) for vector in vectors]
            self.completed += any(right)
            self.lost += not vectors
            self.doubled += len(vectors) - any(right)

    def __add__(self, other: "Account") -> "Account":
        return Account(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Account)))
