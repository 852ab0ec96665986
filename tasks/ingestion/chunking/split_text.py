"""Packs pieces of a text into chunks: as full as the limit allows, cut at the best place in reach."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tasks.ingestion.chunking.count_tokens import TokenCounter
from tasks.ingestion.chunking.cut_places import Break, Stretch, words
from tasks.ingestion.chunking.repeated_header import Frame, is_short

_READ_PIECES = 512
"""Pieces tokenized in one call: enough to make calls cheap, and at most half a megabyte."""
_CHARS_PER_TOKEN = 64
"""A chunk has no more: for a tokenizer, a megabyte of one letter may be a single unknown word."""
_FULL_ENOUGH = 0.5
_FULL_ENOUGH_FOR_SECTION = 0.25
"""Shares of the limit. A better place that leaves a smaller chunk is not worth it."""
_SMALL_CHARS = 16
"""A stretch without white space is not divided further than this to fill a chunk up."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a chunk is, what is put before and behind it, and its tokens: exactly as the model counts them."""

    start: int
    end: int
    tokens: int
    head: str = field(default="", repr=False)
    tail: str = field(default="", repr=False)


class Splitter:
    """Divides one text.

    Args:
        text: what the pieces are of.
        pieces: all of it, in order.
        counter: of the model.
        limit: tokens of a chunk, more than `counter.overhead`, which is included.
        overlap: tokens at the end of a chunk that the next one begins with, at most.
    """

    def __init__(self, text: str, pieces: Iterator[Stretch], counter: TokenCounter, limit: int, overlap: int) -> None:
        self._text = text
        self._source = pieces
        self._counter = counter
        self._limit = limit
        self._room = limit - counter.overhead
        self._overlap = overlap
        self._ahead: deque[Stretch] = deque()
        self._taken: list[Stretch] = []
        self._repeated = 0
        """So many of `_taken` are the overlap. A chunk has more than these."""
        self._framing: dict[str, int] = {"": 0}
        """Tokens of heads and tails."""

    def cuts(self) -> Iterator[Cut]:
        """The chunks in order. Only a character of more tokens than the limit makes one above it."""
        while number := self._fill():
            cut, number = self._verified(number)
            yield cut
            self._ahead.extendleft(reversed(self._taken[number:]))
            self._taken = self._to_repeat(self._taken[:number])
            self._repeated = len(self._taken)

    def _fill(self) -> int:
        """Takes pieces up to the limit; how many of them should be the next chunk, 0 at the end of the text."""
        used = self._used()
        while (piece := self._next()) is not None:
            head = 0 if self._taken else self._framing[self._head(piece)]
            needed = head + piece.tokens + self._framing[self._tail(piece)]
            if used + needed <= self._room and self._is_near(piece):
                self._taken.append(self._ahead.popleft())
                used += head + piece.tokens
                continue
            value, number = self._best_place(len(self._taken), piece)
            # To divide a sentence pays only where none has ended for half a chunk.
            if number and value >= Break.SENTENCE:
                return number
            if parts := self._divided(piece, may_halve=not self._has_new() or piece.value == Break.INSIDE):
                self._ahead.popleft()
                self._ahead.extendleft(reversed(parts))
            elif number:
                return number
            elif self._repeated:
                self._forget_first()
                used = self._used()
            else:
                self._taken.append(self._ahead.popleft())
                return 1
        return len(self._taken) if self._has_new() else 0

    def _used(self) -> int:
        head = self._framing[self._head(self._taken[0])] if self._taken else 0
        return head + sum(piece.tokens for piece in self._taken)

    def _next(self) -> Stretch | None:
        if not self._ahead:
            self._ahead.extend(self._counted(list(islice(self._source, _READ_PIECES))))
        return self._ahead[0] if self._ahead else None

    def _counted(self, parts: Sequence[Stretch]) -> Sequence[Stretch]:
        for piece, tokens in zip(parts, self._counter.parts([piece.text for piece in parts]), strict=True):
            piece.tokens = tokens
        return parts

    def _has_new(self) -> bool:
        return len(self._taken) > self._repeated

    def _is_near(self, piece: Stretch) -> bool:
        return not self._taken or piece.end - self._taken[0].start <= _CHARS_PER_TOKEN * self._limit

    def _forget_first(self) -> None:
        self._repeated -= 1
        self._taken.pop(0)

    def _divided(self, piece: Stretch, *, may_halve: bool) -> Sequence[Stretch]:
        """A piece in words, or one word in halves; nothing if it is as small as it should be."""
        parts = words(piece)
        halves = len(parts) > 1 and parts[1].value == Break.INSIDE
        if len(parts) == 1 or (halves and not may_halve):
            return ()
        if halves and self._has_new() and len(piece.text) <= _SMALL_CHARS:
            return ()
        return self._counted(parts)

    def _best_place(self, number: int, following: Stretch | None = None) -> tuple[int, int]:
        """The best of the places up to the one behind the first `number` pieces: its value, and how many are before it.

        (0, 0) if there is nothing new before any of them.
        """
        best = (False, Break.INSIDE.value, 0)
        used = sum(piece.tokens for piece in self._taken[: self._repeated])
        for place in range(self._repeated + 1, number + 1):
            used += self._taken[place - 1].tokens
            behind = self._taken[place] if place < len(self._taken) else following
            value = behind.value if behind is not None else Break.INSIDE
            share = _FULL_ENOUGH_FOR_SECTION if value >= Break.SECTION else _FULL_ENOUGH
            best = max(best, (used >= share * self._room, value, place))
        full_enough, value, place = best
        return (value if full_enough else Break.INSIDE), place

    def _verified(self, number: int) -> tuple[Cut, int]:
        """The chunk of so many pieces, or of as many of them as truly fit, and how many these are."""
        while True:
            cut = self._cut(self._taken[0], self._taken[number - 1])
            if cut.tokens > self._limit:
                if number > self._repeated + 1:
                    # By proportion: one piece after another, a chunk would be tokenized a hundred times.
                    fitting = max(self._repeated + 1, number * self._limit // cut.tokens)
                    number = self._best_place(min(number - 1, fitting))[1]
                    continue
                if self._repeated:
                    self._forget_first()
                    number -= 1
                    continue
                if parts := self._divided(self._taken[0], may_halve=True):
                    self._taken[:1] = parts
                    number = max(1, len(parts) * self._limit // cut.tokens)
                    continue
                if cut.head or cut.tail:
                    self._taken[0].frame = None
                    continue
            return cut, number

    def _cut(self, first: Stretch, last: Stretch) -> Cut:
        head, tail = self._head(first), self._tail(last)
        tokens = self._counter.count(f"{head}{self._text[first.start : last.end]}{tail}")
        return Cut(first.start, last.end, tokens, head, tail)

    def _head(self, first: Stretch) -> str:
        """What is put before a chunk that begins with this piece; its tokens are known then."""
        frame = first.frame
        return frame.head if frame and frame.start <= first.start < frame.stop and self._is_short(frame) else ""

    def _tail(self, last: Stretch) -> str:
        """What is put behind a chunk that ends with this piece."""
        frame = last.frame
        return frame.tail if frame and last.end < frame.end and self._is_short(frame) else ""

    def _is_short(self, frame: Frame) -> bool:
        if not is_short(len(frame.head), _CHARS_PER_TOKEN * self._limit):
            return False
        for text in (frame.head, frame.tail):
            if text not in self._framing:
                self._framing[text] = self._counter.parts([text])[0]
        return is_short(self._framing[frame.head] + self._framing[frame.tail], self._limit)

    def _to_repeat(self, chosen: list[Stretch]) -> list[Stretch]:
        """The end of a chunk, in whole sentences, or in words where its last sentence is too long; never all of it."""
        if not self._overlap:
            return []
        if chosen[-1].tokens > self._overlap:
            chosen[-1:] = self._divided(chosen[-1], may_halve=False) or chosen[-1:]
        first, tokens = len(chosen), 0
        while first > 1 and tokens + chosen[first - 1].tokens <= self._overlap:
            first -= 1
            tokens += chosen[first].tokens
        while first < len(chosen) and self._alone(chosen[first:]) > self._overlap:
            first += 1
        return chosen[first:]

    def _alone(self, chosen: Sequence[Stretch]) -> int:
        return self._counter.count(self._text[chosen[0].start : chosen[-1].end]) - self._counter.overhead
