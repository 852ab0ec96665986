"""A worker by hand: it claims and commits in the real ledger, with vectors that a test can predict."""

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pytest

from tasks.item import TextError
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.commit import commit
from tasks.ledger.heartbeat import beat, join
from tasks.ledger.overview import took_counts
from tasks.ledger.task import Outcome, Piece
from tasks.model import Model
from tests.ledger_builders import a_model, a_worker

DIMENSION = 4
MAX_TOKENS = 128
TTL_MS = 600_000
_QUICK_S, _IDLE_S = 0.002, 0.02
"""Between two claims: one that finds nothing for a while claims more seldom, and leaves the processor to others."""


def vector(text: str) -> npt.NDArray[np.float32]:
    """What this worker makes of a text: float32 [4]."""
    return np.array([len(text), ord(text[0]), 0.5, 1 / 3], dtype="<f4")


def approximately(*texts: str) -> list[Any]:
    """The vectors of these texts, as they are after a way as JSON."""
    return [pytest.approx(vector(text).tolist()) for text in texts]


def entry(model: str, aliases: tuple[str, ...] = ()) -> Model:
    """How this worker describes the model."""
    prompts: dict[str, Any] = {"prompts": ("query",), "query_prompt": "query", "document_prompt": None}
    sizes = {"dimension": DIMENSION, "max_tokens": MAX_TOKENS, "created_at": 1_700_000_000}
    return a_model(id=model, model=model, revision="r1", compute="fake", aliases=aliases, **prompts, **sizes)


class LedgerWorker:
    """Serves one model. Each text is one token; texts in `errors` fail, texts in `truncated` count as cut."""

    def __init__(self, redis_url: str, model: str, aliases: tuple[str, ...] = ()) -> None:
        self.id = f"w-{uuid.uuid4().hex[:8]}"
        self.model = model
        self.aliases = aliases
        done = {"forward_passes": 3, "items": 4, "tokens": 5, "padded_tokens": 6}
        self._worker = a_worker(self.id, 50_000.0, host="here", rss_bytes=1, **done)
        self.ledger = Ledger.connect(redis_url)
        self.errors: dict[str, TextError] = {}
        self.truncated: set[str] = set()
        self._stop = threading.Event()

    def announce(self) -> None:
        """Says that it has loaded the model and lives for ten minutes."""
        self.ledger.run(join(self.model, self._worker, entry(self.model, self.aliases), TTL_MS))

    def work(self, max_pieces: int = 1000) -> int:
        """Claims once and commits what it got; the number of pieces."""
        stream, stamp = f"{self.id}/0", entry(self.model).stamp
        request = ClaimRequest(stream, f"{stream}/{uuid.uuid4()}", 10**9, max_pieces, 15_000, stamp=stamp)
        taken = self.ledger.run(claim(self.model, request))
        outcomes = [self._encode(piece) for piece in taken.pieces]
        if not outcomes:
            return 0
        reply = self.ledger.run(commit(self.model, taken.token, outcomes))
        if counts := took_counts(reply.completed):
            # As a heartbeat does, without its model, which a test may have exchanged.
            self.ledger.run(beat(self.model, self._worker, None, TTL_MS, counts=counts))
        return len(outcomes)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """While inside, a thread works on whatever comes."""
        self._stop.clear()
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()

    def _serve(self) -> None:
        pause_s = _QUICK_S
        while not self._stop.wait(pause_s):
            pause_s = _QUICK_S if self.work() else min(pause_s * 1.2, _IDLE_S)

    def _encode(self, piece: Piece) -> Outcome:
        texts = piece.texts()
        vectors = np.stack([np.full(DIMENSION, np.nan, "<f4") if t in self.errors else vector(t) for t in texts])
        failed: Mapping[int, TextError] = {
            piece.first + i: self.errors[t] for i, t in enumerate(texts) if t in self.errors
        }
        return Outcome(
            piece=piece,
            data=b"" if len(failed) == len(texts) else vectors.tobytes(),
            tokens=len(texts) - len(failed),
            errors=failed,
            truncated=[piece.first + i for i, t in enumerate(texts) if t in self.truncated],
        )
