"""Cuts documents into chunks that are measured in the model's own tokens.

Our own rather than a library's: semchunk and semantic-text-splitter ask a tokenizer about one candidate after another,
several passes over each text, and neither gives the number of tokens with the slice. Here each piece is tokenized once,
in one call for many, numbers are added up, and each chunk is tokenized once more.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tasks.chunk import Chunk
from tasks.errors import Invalid
from tasks.ingestion.chunking.chunk_settings import ChunkSettings
from tasks.ingestion.chunking.count_tokens import TokenCounter
from tasks.ingestion.chunking.cut_places import pieces
from tasks.ingestion.chunking.split_text import Cut, Splitter
from tasks.ingestion.parsing.extracted import Structure
from tasks.ingestion.parsing.markdown import Block, blocks
from tasks.item import UNLIMITED_TOKENS

MAX_AUTO_TOKENS = 8192
"""Tokens of a chunk, for a model without a maximum."""
MAX_COUNTED_CHARS = 2**20
"""A longer text that is not to be cut counts as longer than any window. Counting it takes 100 bytes of memory for each
of its characters: 20 MB of one letter took 2.3 GB."""
_SMALL_CHARS_PER_TOKEN = 3
"""A text with no more is tried as a single chunk first."""
_FIRST_CHARS_PER_TOKEN = 16
_LONGEST_WORD_TOKENS = 100
"""BERT's: of a longer word, which is one token, a part of 100 letters may have as many."""


class Chunker:
    """Cuts texts for one model and one way of cutting. May be used by several threads.

    Args:
        tokenizer_json: of the model, see `load_tokenizer`.
        window: longest text that the model reads, in tokens, special tokens and prompt included.
        prompt: that the model will read before each chunk, see `load_prompt`.
        settings: how to cut.

    Raises:
        Invalid: special tokens and prompt leave no room in a chunk.
    """

    def __init__(self, tokenizer_json: bytes, window: int, prompt: str, settings: ChunkSettings) -> None:
        self._counter = TokenCounter(tokenizer_json, prompt)
        self._window = window
        self._settings = settings
        self._limit = min(window, settings.max_tokens or MAX_AUTO_TOKENS)
        if self._limit <= self._counter.overhead:
            raise Invalid(
                "invalid_value",
                f"The model's special tokens and prompt take {self._counter.overhead} tokens, and a chunk may have "
                f"{self._limit}: use a larger chunking.static.max_chunk_size_tokens, or a shorter prompt.",
                param="chunking.static.max_chunk_size_tokens",
            )

    def count(self, text: str) -> int:
        """Tokens of a text as the model would read it without a maximum: special tokens and prompt included.

        Raises:
            DocumentFailed: the text is not valid Unicode.
        """
        return self._counter.count(text)

    def chunks(self, text: str, structure: Structure | None, pages: Sequence[int] = ()) -> Iterator[Chunk]:
        """The chunks of a document in order, which hold all of its text but white space; none if it is blank.

        A part of a table has the table's header before it, a part of code its fences around it. They are made one by
        one, so that memory is bounded.

        Args:
            text: the document's.
            structure: see `Extracted`; None: nobody knows.
            pages: offsets of its pages, see `Extracted`.

        Raises:
            DocumentFailed: the text is not valid Unicode.
        """
        found = blocks(text, structure) if structure else ()
        outline = Outline(text, found, pages)
        for index, cut in enumerate(self._cuts(text, found)):
            yield Chunk(
                index=index,
                text=f"{cut.head}{text[cut.start : cut.end]}{cut.tail}",
                start=cut.start,
                end=cut.end,
                page=outline.page(cut.start),
                headings=outline.headings(cut.start),
                token_count=min(cut.tokens, self._window),
                truncated=cut.tokens > self._window,
            )

    def _cuts(self, text: str, found: Sequence[Block]) -> Iterator[Cut]:
        start, end = _kept(text)
        if start == end:
            return
        if self._settings.type == "none":
            yield Cut(start, end, self._tokens_up_to_window(text[start:end]))
            return
        if end - start <= _SMALL_CHARS_PER_TOKEN * self._limit:
            tokens = self._counter.count(text[start:end])
            if tokens <= self._limit:
                yield Cut(start, end, tokens)
                return
        all_pieces = pieces(text, found, structured=self._settings.type == "auto")
        overlap = min(self._settings.overlap_tokens, (self._limit - self._counter.overhead) // 2)
        yield from Splitter(text, all_pieces, self._counter, self._limit, overlap).cuts()

    def _tokens_up_to_window(self, text: str) -> int:
        """Tokens of a text; of one above the window, some number above it, without reading all of a long one."""
        if self._window == UNLIMITED_TOKENS and len(text) > MAX_COUNTED_CHARS:
            return self._counter.overhead + self._tokens_by_parts(text)
        size, above = _FIRST_CHARS_PER_TOKEN * self._window, self._window + max(self._window, _LONGEST_WORD_TOKENS)
        while size < min(len(text), MAX_COUNTED_CHARS):
            # The end may be in the middle of a word, so the count has to be well above the window.
            if self._counter.count(text[:size]) > above:
                return above
            size *= 4
        return self._counter.count(text) if len(text) <= MAX_COUNTED_CHARS else above

    def _tokens_by_parts(self, text: str) -> int:
        """Tokens of a text, without the special ones; a word at the end of a part may count as two."""
        parts = (text[start : start + MAX_COUNTED_CHARS] for start in range(0, len(text), MAX_COUNTED_CHARS))
        return sum(self._counter.parts([part])[0] for part in parts)


def _kept(text: str) -> tuple[int, int]:
    """Where a text without the white space around it begins and ends."""
    start = len(text) - len(text.lstrip())
    return start, max(start, len(text.rstrip()))


# ---- the place of a chunk in its document: its page, and the headings above it ---------------------------------------

MAX_TITLE_CHARS = 500
"""Longest heading beside the chunks of its section: a page without line breaks may be taken for a heading."""


class Outline:
    """Pages and headings of places, which have to be asked for in the order of the text."""

    def __init__(self, text: str, found: Sequence[Block], pages: Sequence[int]) -> None:
        self._text = text
        self._headings = [block for block in found if block.kind == "heading"]
        self._pages = pages
        self._passed = 0
        self._path: list[tuple[int, str]] = []

    def page(self, place: int) -> int | None:
        """The page on which a place is, from 1; None without pages."""
        return max(1, bisect_right(self._pages, place)) if self._pages else None

    def headings(self, place: int) -> tuple[str, ...]:
        """The headings of the sections around a place, the outermost first. A heading at the place counts.

        `place` is not before that of an earlier call.
        """
        while self._passed < len(self._headings) and self._headings[self._passed].start <= place:
            heading = self._headings[self._passed]
            while self._path and self._path[-1][0] >= heading.level:
                self._path.pop()
            self._path.append((heading.level, _title(self._text[heading.start : heading.end], heading.level)))
            self._passed += 1
        return tuple(title for _, title in self._path if title)


def _title(text: str, level: int) -> str:
    """A heading on one line, without the marks of Markdown: `#` as often as its level says, or a line below it."""
    lines = text.splitlines()
    below = lines[-1].strip() if len(lines) > 1 else ""
    if below and set(below) in ({"="}, {"-"}):
        lines.pop()
    words = " ".join(lines).split()
    if words and words[0] == "#" * level:
        words = words[1:]
        if words and not words[-1].strip("#"):
            words.pop()
    return " ".join(words)[:MAX_TITLE_CHARS].rstrip()
