"""What a model worker does with one claim: encode its texts, commit the vectors, give back what it cannot finish."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.encoder.encode import PassLock, encode
from tasks.encoder.interface import Encoder, EncodeStats, Text
from tasks.item import FLOAT32_BYTES, TextError, Vector, cost
from tasks.ledger.claim import Claim
from tasks.ledger.task import Lane, Outcome, Piece
from tasks.model import Model
from tasks.pieces import weighed
from tasks.storage.rows_file import RowsReference
from tasks.storage.vectors_file import VectorsReference
from tasks.worker.claim_loop import ClaimSize, Stream
from tasks.worker.claim_size import Speed
from tasks.worker.process.stop import Stopping
from tasks.worker.rows import RowStore
from worker_config.telemetry import SpanAttributes

PORTION_BYTES = 16 * 2**20
"""Of texts and vectors, encoded and committed at a time: a claim is measured by what the model takes, and may hold
hundreds of megabytes of texts that it cuts. On two cores a claim of usual texts is one portion."""
STORAGE_PAUSE_S = 1.0
"""After the storage was away for a claim; pieces that need none wait as long, online ones do not."""
_LOOK_EVERY_S = 0.1
QUIET_AFTER_S = 10.0
"""Without a query. A caller that asks once a second is served as fast as one that asks a hundred times."""
ONLINE_PER_STEP = 7
"""Between two steps of work the online lane gets at most this many times their duration."""


class EncodeClaims:
    """Encodes and commits the claims of all streams of a model worker; their `Work`.

    `speed` is that of one stream, and `lock` of all threads that use the encoder; None where there is one.
    """

    def __init__(self, encoder: Encoder, rows: RowStore, speed: Speed, lock: PassLock | None) -> None:
        self.encoder, self.rows, self.speed, self.lock = encoder, rows, speed, lock
        self._asked_at = -math.inf

    def claim_size(self) -> ClaimSize:
        """See `Work.claim_size`. Smaller while queries come: small pieces of the online lane."""
        return self.speed.claim_size(beside_queries=self._beside_queries)

    @property
    def pass_tokens(self) -> int:
        """Padded tokens of one pass."""
        return self.speed.pass_tokens(beside_queries=self._beside_queries)

    @property
    def _beside_queries(self) -> bool:
        return time.monotonic() - self._asked_at < QUIET_AFTER_S

    def __call__(self, claim: Claim, stream: Stream) -> None:
        """See `Work.__call__`.

        The online lane is served between the steps of bulk work: pieces that are read, texts that are tokenized,
        micro-batches. Between the steps of lists of the online lane, its small pieces are.

        Raises:
            EncoderBroken: this process must be replaced.
            Stopping: a stop was asked for.
        """
        online = claim.lane is Lane.ONLINE
        large = [piece.items > 1 and piece.cost >= self.speed.small_cost for piece in claim.pieces]
        if online and not all(large):
            self._asked_at = time.monotonic()
        turn = None
        if not claim.pieces[0].deaths and (any(large) or not online):  # with deaths it is alone in this process
            turn = OnlineTurn(lambda: self._serve_online(stream, no_lists=online))
        run = _Run(self, claim, stream, turn)
        try:
            run.encode_and_commit()
        finally:
            # Once for the claim: with once for each portion, a claim of long texts would weigh more than others.
            self.speed.measured(run.cost, run.seconds)
        if run.done < len(claim.pieces):  # the storage is away
            stream.give_back(claim)  # another worker may reach it
            run.pause()

    def _serve_online(self, stream: Stream, *, no_lists: bool) -> bool:
        size = self.speed.claim_size(beside_queries=True) if no_lists else self.claim_size()
        return not stream.of.stop() and stream.serve_online(size, no_lists=no_lists)


class OnlineTurn:
    """The online lane's turns between two steps of other work. `serve` does what it has: whether it had any."""

    def __init__(self, serve: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._serve, self._clock = serve, clock
        self._resumed = clock()
        self._overdrawn_s = self.spent_s = 0.0

    def __call__(self) -> None:
        """Between two steps. What a claim takes beyond the allowance is missing later."""
        began = self._clock()
        allowance = ONLINE_PER_STEP * (began - self._resumed) - self._overdrawn_s
        while self._clock() - began <= allowance and self._serve():
            pass
        self._resumed = self._clock()
        spent_s = self._resumed - began
        self._overdrawn_s = max(0.0, spent_s - allowance)
        self.spent_s += spent_s


@dataclass(frozen=True, slots=True)
class PieceTexts:
    """A piece and what it has at each place: a text, or the error of a row that has none.

    `rows`: where its rows are; None when it carries its texts.
    """

    piece: Piece
    items: Sequence[Text | TextError]
    rows: RowsReference | None = None

    @property
    def texts(self) -> list[Text]:
        """Those to encode."""
        return [item for item in self.items if not isinstance(item, TextError)]

    def vectors(self, encoded: Iterator[Vector]) -> list[Vector]:
        """One for each item; takes one of `encoded` for each text."""
        return [Vector.failed(item) if isinstance(item, TextError) else next(encoded) for item in self.items]

    def outcome(self, vectors: Sequence[Vector], part: VectorsReference | None = None) -> Outcome:
        """What to commit: where the vectors are, or they themselves."""
        tokens = sum(vector.tokens for vector in vectors)
        if part is not None:
            failed = sum(vector.error is not None for vector in vectors)
            return Outcome(self.piece, part.to_json(), tokens, failed_in_part=failed)
        first = self.piece.first
        return Outcome(
            piece=self.piece,
            data=_rows(vectors),
            tokens=tokens,
            errors={first + i: vector.error for i, vector in enumerate(vectors) if vector.error is not None},
            truncated=[first + i for i, vector in enumerate(vectors) if vector.truncated and vector.error is None],
        )


class _Run:
    """A claim on its way.

    Attributes:
        done: how many of its pieces are committed.
        cost: estimated tokens that went through the model.
        seconds: that they took.
    """

    def __init__(self, work: EncodeClaims, claim: Claim, stream: Stream, turn: OnlineTurn | None) -> None:
        self._work, self._claim, self._stream, self._turn = work, claim, stream, turn
        self._encoder, self._rows = work.encoder, work.rows
        self._portions = 0
        self.done = self.cost = 0
        self.seconds = 0.0

    def encode_and_commit(self) -> None:
        """Portion by portion; ends early where the storage is away.

        Raises:
            EncoderBroken, Stopping: what is left of the claim is to be given back.
        """
        for portion in weighed(self._read(), self._bytes, PORTION_BYTES):
            if self._portions:
                self._between()
            before = self.done
            self._encode(portion)
            self._portions += 1
            if self.done - before < len(portion):
                return

    def pause(self) -> None:
        """Waits for the storage. Callers of online work do not wait with it.

        Raises:
            Stopping: a stop was asked for.
        """
        until = time.monotonic() + STORAGE_PAUSE_S
        while time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
            self._between()

    def _between(self) -> None:
        if self._stream.of.stop():
            raise Stopping
        if self._turn is not None:
            self._turn()

    def _bytes(self, piece: PieceTexts) -> int:
        """Of its texts in memory, at most, and of their vectors."""
        texts = [text.text for text in piece.texts]
        of_texts = sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
        return of_texts + len(texts) * FLOAT32_BYTES * self._encoder.info.dimension

    def _read(self) -> Iterator[PieceTexts]:
        """The pieces with their texts; without those whose rows cannot be read now."""
        for piece in self._claim.pieces:
            rows = RowsReference.from_payload(piece.payload)
            if rows is None:
                yield PieceTexts(piece, [Text(text, piece.options) for text in piece.texts()])
                continue
            with self._stream.progress.outside():
                items = self._rows.texts(rows, piece.offset, piece.items)
            if items is not None:
                yield PieceTexts(piece, items, rows)
                self._between()  # a bucket may be slow

    def _encode(self, pieces: Sequence[PieceTexts]) -> None:
        turn = self._turn
        began, online_s, began_ns = time.monotonic(), turn.spent_s if turn else 0.0, time.time_ns()
        texts = [text for piece in pieces for text in piece.texts]
        vectors, stats = encode(
            self._encoder,
            texts,
            max_padded_tokens=self._work.pass_tokens,
            lock=self._work.lock,
            between=self._between,
            finished=self._stream.progress.step,
        )
        self.seconds += time.monotonic() - began - (turn.spent_s - online_s if turn else 0.0)
        self.cost += self._encoded_cost(texts, vectors)
        if self._claim.trace is not None:
            of = {piece.piece.task_id for piece in pieces}
            self._claim.trace.add("encode", began_ns, _described(self._encoder.info, texts, stats), of=of)
        self._commit(pieces, vectors)
        self._stream.of.count(
            {
                "forward_passes": stats.forward_passes,
                "padded_tokens": stats.padded_tokens,
                "tokens": stats.tokens,
                "encoded_items": len(texts),
            }
        )

    def _commit(self, pieces: Sequence[PieceTexts], encoded: Sequence[Vector]) -> None:
        found = iter(encoded)
        vectors = [piece.vectors(found) for piece in pieces]
        # Each portion has parts of its own: one of the same name would replace what is committed already.
        run = f"{self._claim.token}/{self._portions}"
        rows = [(piece.rows, of) for piece, of in zip(pieces, vectors, strict=True) if piece.rows is not None]
        with self._stream.progress.outside():
            written = iter(self._rows.write(run, rows))
        parts = [None if piece.rows is None else next(written) for piece in pieces]
        ends = [n for n, piece in enumerate(pieces) if piece.rows is None or parts[n] is not None]
        if not ends:
            return
        last = self.done + len(ends) == len(self._claim.pieces)
        self._stream.commit(self._claim, [pieces[n].outcome(vectors[n], parts[n]) for n in ends], last=last)
        self.done += len(ends)

    def _encoded_cost(self, texts: Sequence[Text], vectors: Sequence[Vector]) -> int:
        went_through = {
            (text.options.prompt_name, text.text)
            for text, vector in zip(texts, vectors, strict=True)
            if vector.error is None
        }
        return sum(cost(text, self._encoder.info.max_tokens) for _, text in went_through)


def _described(info: Model, texts: Sequence[Text], stats: EncodeStats) -> SpanAttributes:
    return {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.request.model": info.model,
        "gen_ai.usage.input_tokens": stats.tokens,
        "embedq.texts": len(texts),
        "embedq.tokens.padded": stats.padded_tokens,
        "embedq.forward_passes": stats.forward_passes,
        "embedq.device": info.device,
    }


def _rows(vectors: Sequence[Vector]) -> bytes:
    """Little-endian float32 rows of one piece; a failed text is a row of NaN; empty when all failed."""
    first = next((item.vector for item in vectors if item.vector is not None), None)
    if first is None:
        return b""
    rows = np.full((len(vectors), len(first)), np.nan, dtype="<f4")
    for row, item in zip(rows, vectors, strict=True):
        if item.vector is not None:
            row[:] = item.vector
    return rows.tobytes()
