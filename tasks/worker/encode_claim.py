"""What a model worker does with one claim: encode its texts, commit the vectors, give back what it cannot finish."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tasks.encoder.encode import PassLock, encode
from tasks.encoder.interface import Encoder, EncodeStats, Text
from tasks.item import FLOAT32_BYTES, Vector, cost
from tasks.ledger.claim import Claim
from tasks.ledger.commit import CommitCode
from tasks.ledger.task import Lane, Piece
from tasks.model import Model
from tasks.pieces import weighed
from tasks.storage.row_file import RowReference
from tasks.worker.claim_loop import ClaimSize, Stream
from tasks.worker.claim_size import Speed
from tasks.worker.commit_claim import Claims
from tasks.worker.online_first import SMALL_PER_LIST, OnlineCheck, RecentWork
from tasks.worker.pieces import PieceTexts, rows_of
from tasks.worker.process.stop import Stopping
from tasks.worker.rows import RowStore
from worker_config.subject import SpanAttributes

PORTION_BYTES = 16 * 2**20
"""Of texts and vectors, encoded and committed at a time: a claim is measured by what the model takes, and may hold
hundreds of megabytes of texts that it cuts. On two cores a claim of usual texts is one portion."""

STORAGE_PAUSE_S = 1.0
"""After the storage was away for a claim; pieces that need none wait as long, online ones do not."""
_CHECK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Shared:
    """What the streams of a model worker share.

    Attributes:
        encoder: the loaded model.
        claims: how they end.
        rows: where the rows of batches are.
        lock: of the threads that use the encoder; None: there is one.
        online: work of the online lane, beside which claims of bulk work are smaller.
        small: small pieces of it, beside which passes of bulk work and of lists are.
    """

    encoder: Encoder
    claims: Claims
    rows: RowStore
    lock: PassLock | None
    online: RecentWork = field(default_factory=RecentWork)
    small: RecentWork = field(default_factory=RecentWork)


class EncodeClaims:
    """Encodes and commits claims. One thread; a `Work` of a stream.

    Args:
        shared: with the other streams.
        speed: of this stream; sizes its claims.
    """

    def __init__(self, shared: Shared, speed: Speed) -> None:
        self._shared = shared
        self.speed = speed

    def claim_size(self) -> ClaimSize:
        """See `Work.claim_size`."""
        return self.speed.claim_size(online=self._shared.online.expected, small=self._shared.small.expected)

    def __call__(self, claim: Claim, stream: Stream) -> None:
        """See `Work.__call__`.

        The online lane is served between the steps of bulk work: pieces that a bucket is slow to give, texts that are
        tokenized, micro-batches. Between the steps of lists of the online lane, its small pieces are.

        Raises:
            EncoderBroken: this process must be replaced.
            Stopping: a stop was asked for.
        """
        online = claim.lane is Lane.ONLINE
        lists = online and any(map(self._is_large, claim.pieces))
        if online:
            self._shared.online.seen()
        if online and not all(map(self._is_large, claim.pieces)):
            self._shared.small.seen()
        run = _Run(self, self._shared, claim, stream, self._check(claim, stream, lists=lists))
        try:
            run.encode_and_commit()
        finally:
            # Once for the claim: with once for each portion, a claim of long texts would weigh more than others.
            self.speed.measured(run.cost, run.seconds)
        if run.done < len(claim.pieces):  # the storage is away
            stream.give_back(claim)
            run.pause()

    def _check(self, claim: Claim, stream: Stream, *, lists: bool) -> OnlineCheck | None:
        """What the claim stops for between two steps; None: nothing."""
        stop = self._shared.claims.stop
        if claim.pieces[0].deaths:  # it is alone in this process
            return None
        if claim.lane is Lane.BULK:
            return OnlineCheck(lambda: stream.serve_online(self.claim_size()), stop)
        if not lists:
            return None
        small = partial(self.speed.claim_size, online=True, small=True)
        return OnlineCheck(lambda: stream.serve_online(small(), no_lists=True), stop, times=SMALL_PER_LIST)

    def _is_large(self, piece: Piece) -> bool:
        return piece.items > 1 and piece.cost >= self.speed.small_cost


class _Run:
    """A claim on its way.

    Attributes:
        done: how many of its pieces are committed.
        cost: estimated tokens that went through the model.
        seconds: that they took.
    """

    def __init__(
        self, work: EncodeClaims, shared: Shared, claim: Claim, stream: Stream, check: OnlineCheck | None
    ) -> None:
        self._work, self._shared, self._claim, self._stream, self._check = work, shared, claim, stream, check
        self._encoder = shared.encoder
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
                self._between(_CHECK_EVERY_S)
            before = self.done
            self._encode(portion)
            self._portions += 1
            if self.done - before < len(portion):
                return

    def pause(self) -> None:
        """Waits for the storage. Callers of online work do not wait with it."""
        until, stop = time.monotonic() + STORAGE_PAUSE_S, self._shared.claims.stop
        while time.monotonic() < until and not stop():
            time.sleep(_CHECK_EVERY_S)
            if self._check is not None:
                self._check()

    def _between(self, most_s: float = math.inf) -> None:
        if self._shared.claims.stop():
            raise Stopping
        if self._check is not None:
            self._check(most_s)

    def _bytes(self, piece: PieceTexts) -> int:
        """Of its texts in memory, at most, and of their vectors."""
        texts = [text.text for text in piece.texts]
        of_texts = sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
        return of_texts + len(texts) * FLOAT32_BYTES * self._encoder.info.dimension

    def _read(self) -> Iterator[PieceTexts]:
        """The pieces with their texts; without those whose rows cannot be read now."""
        by_reference: list[tuple[Piece, RowReference, int]] = []
        for piece in self._claim.pieces:
            rows = rows_of(piece)
            if rows is None:
                yield PieceTexts.carried(piece)
            else:
                by_reference.append((piece, rows, piece.items))
        found, checked = self._shared.rows.read(by_reference), time.monotonic()
        while True:
            with self._stream.progress.outside():
                read = next(found, None)
            if read is None:
                return
            yield PieceTexts(*read, rows_of(read[0]))
            if time.monotonic() - checked > _CHECK_EVERY_S:  # only a bucket is so slow
                self._between(_CHECK_EVERY_S)
                checked = time.monotonic()

    def _encode(self, pieces: Sequence[PieceTexts]) -> None:
        check, speed = self._check, self._work.speed
        if check is not None:
            check.resume()
        began, online_s, began_ns = time.monotonic(), check.spent_s if check else 0.0, time.time_ns()
        texts = [text for piece in pieces for text in piece.texts]
        vectors, stats = encode(
            self._encoder,
            texts,
            max_padded_tokens=speed.pass_tokens(interrupted=check is not None, small=self._shared.small.expected),
            lock=self._shared.lock,
            between=self._between,
            finished=self._stream.progress.step,
        )
        self.seconds += time.monotonic() - began - (check.spent_s - online_s if check else 0.0)
        self.cost += self._encoded_cost(texts, vectors)
        if self._claim.trace is not None:
            of = {piece.piece.task_id for piece in pieces}
            self._claim.trace.add("encode", began_ns, _described(self._encoder.info, texts, stats), of=of)
        self._commit(pieces, vectors)
        self._shared.claims.count(
            {
                "forward_passes": stats.forward_passes,
                "padded_tokens": stats.padded_tokens,
                "tokens": stats.tokens,
                "encoded_items": len(texts),
            }
        )

    def _commit(self, pieces: Sequence[PieceTexts], encoded: Sequence[Vector]) -> None:
        vectors, at = list[list[Vector]](), 0
        for piece in pieces:
            vectors.append(piece.vectors(encoded[at : at + len(piece.texts)]))
            at += len(piece.texts)
        rows = [(n, piece.rows, vectors[n]) for n, piece in enumerate(pieces) if piece.rows is not None]
        with self._stream.progress.outside():
            # Each portion has parts of its own: one of the same name would replace what is committed already.
            parts = dict(self._shared.rows.write(f"{self._claim.token}/{self._portions}", rows))
        stored = [n for n, piece in enumerate(pieces) if piece.rows is None or n in parts]
        if not stored:
            return
        last = self.done + len(stored) == len(self._claim.pieces)
        outcomes = [pieces[n].outcome(vectors[n], parts.get(n)) for n in stored]
        reply = self._stream.commit(self._claim, outcomes, last=last)
        # The other parts are of tasks that have ended, or that another worker has.
        held = zip(stored, reply.codes, strict=True)
        kept = {parts[n].part for n, code in held if n in parts and code is not CommitCode.STALE}
        self._shared.rows.discard({part.part for part in parts.values()} - kept)
        self.done += len(stored)

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
