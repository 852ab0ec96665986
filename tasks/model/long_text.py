"""Texts far above the model's window: only as much of them is tokenized as the window takes.

A text may end early at a *seam*: between two characters that this tokenizer separates, whatever stands behind them. The
tokens in front of a seam are then those of the whole text. If they are more than the window takes, nobody needs the
rest. If they are not, the text is read up to a later seam, at last to its end.

Why a seam is safe, in the order in which the library `tokenizers` works:

| step | why the part in front of the seam does not change |
|---|---|
| added tokens (`[SEP]`) | none of them contains two characters as they stand on the two sides |
| normalizer | each that is listed here works character by character, or joins only marks, blanks or quotes |
| pre-tokenizer | it cuts at each seam: those by characters were asked, the listed patterns were read one by one |
| model | it sees one piece between two cuts after the other; or no entry of its vocabulary reaches over a seam |
| special tokens, cutting | by the number of tokens alone |

A tokenizer with a step that is not listed here has no seams, and its texts are read to their end.
"""

import json
import re
import string
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

_CHARS_PER_TOKEN = 8
"""Read first, for each token of the window: prose has 4 to 6."""
_LONG = 4
"""Times that: longer texts are cut. Shorter ones are counted to their end, which takes some milliseconds."""
_GROWTH = 4
"""Of what is looked through for a seam, from try to try."""
_MORE, _LEAST_GROWTH, _MOST_GROWTH = 1.5, 2, 64
"""If a beginning has half the tokens of the window, the next one is three times as long: twice, and `_MORE`."""

_HAN = "\u4e00-\u9fd5"
_LETTERS_OF_WORDS = (
    "0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"  # Latin
    "\u0391-\u03a1\u03a3-\u03ce\u0400-\u0481\u048a-\u0527"  # Greek, Cyrillic
    "\u0531-\u0556\u0561-\u0587\u10d0-\u10f0"  # Armenian, Georgian
    "\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\u0904-\u0939\u0e01-\u0e30"  # Hebrew, Arabic, Devanagari, Thai
    "\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3"  # Kana, Hangul
)
_LETTERS = _LETTERS_OF_WORDS + _HAN
"""In front of a seam. No normalizer makes them blank or nothing, and to every pattern they are letters or digits."""
_BLANK = "\u2581"
_BLANKS = " \t\n\r\u3000"
_CLOSING = ".,;:!?)\u3001\u3002\uff0c\uff01\uff1f\uff1a\uff1b\uff09\u300d\u300f"
"""In front of a blank, where blanks alone decide. A pattern may take punctuation and the line's end together."""
_BEHIND = _BLANKS + "".join(sorted(set(string.punctuation) - {"'", "_"})) + "\u3001\u3002\uff0c\uff01\uff1f\uff1a\uff1b"
"""Candidates for the side behind a seam. Not the apostrophe (`'s` is one piece), nor `_`, which may belong to words."""
_SAMPLES = "aZ1\u00e9\u044f\u6f22"
_LONGEST_WORD = 1000
"""In characters. A model that reads longer ones as more than an unknown token has none that may be shortened."""
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")

_ASKED = (
    *(range(0x21), range(0x7F, 0xC0), range(0x300, 0x370)),  # controls, blanks, signs of Latin, marks
    *(range(0x591, 0x5C8), range(0x610, 0x61B), range(0x64B, 0x660), range(0x670, 0x671)),  # marks of Hebrew and Arabic
    *(range(0x900, 0x10A0), range(0x1200, 0x1380), range(0x1780, 0x1800)),  # India, South-east Asia, Ethiopia
    *(range(0x2000, 0x2070), range(0x20A0, 0x2C00), range(0x3000, 0x3001)),  # blanks, symbols, lines
    *(range(0xFE00, 0xFE10), range(0xFEFF, 0xFF00), range(0xFFFD, 0xFFFE)),  # marks, replacement
    *(range(0x1D400, 0x1D800), range(0x1F300, 0x1FB00)),  # letters of mathematics, emoji
)
"""Code points of which BERT's tokenizers are asked whether they are blanks, nothing, marks, or parts of words."""

_NORMALIZERS = {
    "BertNormalizer",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Precompiled",
    "Prepend",
    "Strip",
    "StripAccents",
}
_BERT = ["BertNormalizer", "BertPreTokenizer"]
_REPLACED = {" {2,}", r"\s+"}
_SPLITTERS = {"BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit"}
_BEFORE_NUMBERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_BEHIND_NUMBERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = {
    _BEFORE_NUMBERS + r"\p{N}" + _BEHIND_NUMBERS,  # Qwen 2 and 3
    _BEFORE_NUMBERS + r"\p{N}{1,3}" + _BEHIND_NUMBERS,  # Llama 3
}
"""In none of them does a part that takes a letter or a digit take or look at anything of `_BEHIND` afterwards."""


class Reading(NamedTuple):
    """What was read of a text: the library's encoding; `exact`: of the text to its end."""

    encoding: Any
    exact: bool


class WindowReader:
    """Tokenizes texts as far as the window needs them.

    Args:
        tokenizer: of the library `tokenizers`. It neither pads nor changes afterwards; it cuts texts at its window.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        truncation = tokenizer.truncation or {}
        # What is cut off on the left is the beginning: the end has to be read.
        from_the_right = truncation.get("direction") == "right" and not truncation.get("stride")
        self._window = int(truncation.get("max_length", 0))
        self._first_chars = _CHARS_PER_TOKEN * self._window
        self._seam = find_seam(tokenizer) if from_the_right and self._first_chars else None
        self._counted_chars = sys.maxsize if self._seam is None else _LONG * self._first_chars
        self._shorten = _Shortener(tokenizer) if self._seam is not None and _has_whole_words(tokenizer) else None

    def __call__(self, texts: Sequence[str], prompt: str) -> list[Reading]:
        """What the model reads of each text behind the prompt, in order."""
        if max(map(len, texts), default=0) <= self._counted_chars:
            encodings = self._encode([prompt + text for text in texts])
            return [Reading(encoding, exact=True) for encoding in encodings]
        ends = [self._first_end(text) for text in texts]
        pairs = zip(texts, ends, strict=True)
        encodings = self._encode([prompt + self._beginning(text, end) for text, end in pairs])
        return [
            self._grown(text, end, prompt, encoding) for text, end, encoding in zip(texts, ends, encodings, strict=True)
        ]

    def _encode(self, texts: list[str]) -> list[Any]:
        encodings: list[Any] = self._tokenizer.encode_batch_fast(texts)
        return encodings

    def _first_end(self, text: str) -> int:
        # Half of a surrogate pair is an error, as in a short text, and wherever it stands: the tokenizer has to see it.
        is_cut = len(text) > self._counted_chars and _is_unicode(text)
        return self._end(text, self._first_chars) if is_cut else len(text)

    def _end(self, text: str, least: int) -> int:
        """Of a beginning of so many characters or more."""
        while self._seam is not None and 2 * least < len(text):
            # The search is slow where it finds only blanks.
            if not text[least : 2 * least].isspace() and (seam := self._seam.search(text, least, 2 * least)):
                return seam.start()
            least *= _GROWTH
        return len(text)

    def _beginning(self, text: str, end: int) -> str:
        is_long = len(text) > self._counted_chars
        return self._shorten(text[:end]) if is_long and self._shorten is not None else text[:end]

    def _grown(self, text: str, end: int, prompt: str, encoding: Any) -> Reading:
        while end < len(text) and not encoding.overflowing:
            growth = _MORE * self._window / max(1, len(encoding.ids))
            end = self._end(text, int(end * min(max(growth, _LEAST_GROWTH), _MOST_GROWTH)))
            [encoding] = self._encode([prompt + self._beginning(text, end)])
        return Reading(encoding, exact=end == len(text))


class _Shortener:
    """Makes texts short that have few tokens in many characters, and so have to be read far or to their end.

    Where each word has tokens of its own, three things have no influence on them: all but one of several blanks, all
    but two of several characters that the normalizer takes away, and the middle of a word that is one unknown token
    because of its length.
    """

    def __init__(self, tokenizer: Any) -> None:
        added = _added(tokenizer)
        kinds: dict[str, str] = {" ": "", "": "", "word": "", "mark": ""}
        known = re.compile(f"[{_LETTERS_OF_WORDS}]")
        sorts_marks = _decomposes(tokenizer)
        for code_point in sorted({point for points in _ASKED for point in points} - set(map(ord, "".join(added)))):
            kind = _within_a_word(tokenizer, chr(code_point), sorts_marks=sorts_marks)
            if kind is not None and not known.match(chr(code_point)):
                kinds[kind] += chr(code_point)
        # An added token at the edge of a word takes as much of the word as it has, and leaves enough.
        kept = tokenizer.model.max_input_chars_per_word // 2 + 1 + max(map(len, added), default=0)
        self._blanks = kinds[" "].replace(" ", "")
        letters = _LETTERS_OF_WORDS + _as_ranges(kinds["word"])
        self._any = _Runs(letters, nothing=kinds[""], marks=kinds["mark"], kept=kept)
        # A small set is searched several times as fast.
        self._ascii = _Runs("0-9A-Za-z", nothing="".join(filter(str.isascii, kinds[""])), marks="", kept=kept)

    def __call__(self, text: str) -> str:
        for blank in self._blanks:  # many times as fast as a search for any of them
            text = text.replace(blank, " ")
        text = re.sub("  +", " ", text)
        return (self._ascii if text.isascii() else self._any).shortened(text)


class _Runs:
    """Finds words of which only the ends count, and what is nothing.

    Args:
        letters: of words, as within a set.
        nothing: characters that the normalizer takes away.
        marks: characters that it takes away too, but that other marks do not move across.
        kept: letters of a long word that stay at each end.
    """

    def __init__(self, letters: str, *, nothing: str, marks: str, kept: int) -> None:
        # Each begins with one set of characters, as in `_compiled`.
        letter, some = f"[{letters}]", f"[{letters}{_as_ranges(nothing + marks)}]"
        self._words = re.compile(f"{some}(?<!{some}{some}){some}{{{2 * kept},}}")
        # The first way is fast, the second one is for words with marks. No character can be both, or a word without an
        # end would be searched in ever more ways.
        marked = f"(?:[{_as_ranges(nothing + marks)}]*{letter}){{{kept}}}"
        self._edge = re.compile(f"{letter}{{{kept}}}|{marked}" if nothing + marks else f"{letter}{{{kept}}}")
        # What stands beside an added token may decide whether it is one. A run of either kind keeps its ends, so marks
        # move across as little as before.
        self._nothing, self._marks = (_runs_of(characters) for characters in (nothing, marks))
        self._seldom = nothing if nothing.isascii() else ""
        """A text without any of these few is known as such in a quarter of the time."""

    def shortened(self, text: str) -> str:
        """The same words, as far as their tokens are concerned."""
        if self._nothing is not None and (not self._seldom or any(one in text for one in self._seldom)):
            text = self._nothing.sub(r"\1\2", text)
        text = self._words.sub(self._without_middle, text)
        # The last, as most marks are in words.
        return text if self._marks is None else self._marks.sub(r"\1\2", text)

    def _without_middle(self, found: re.Match[str]) -> str:
        """Both ends of a word. The cut lies between two letters, so no mark moves across it."""
        word = found[0]
        first, last = self._edge.match(word), self._edge.match(word[::-1])
        if first is None or last is None or first.end() + last.end() >= len(word):
            return word
        return word[: first.end()] + word[-last.end() :]


def _runs_of(characters: str) -> re.Pattern[str] | None:
    """Three and more of them; the first and the last one are groups. None: a normalizer may keep all characters."""
    one = f"[{_as_ranges(characters)}]"
    return re.compile(f"({one}){one}+({one})") if characters else None


def _within_a_word(tokenizer: Any, character: str, *, sorts_marks: bool) -> str | None:
    """A blank, nothing, `mark` or `word`: what a character is between two letters. None: anything else."""
    normalized = _normalized(tokenizer, f"a{character}a")
    if (between := normalized[1:-1]) == "" and _is_barrier(character):
        return "mark"
    if between in {" ", ""}:
        return between
    moves = sorts_marks and unicodedata.combining(character)
    return "word" if not moves and len(tokenizer.pre_tokenizer.pre_tokenize_str(normalized)) == 1 else None


def _decomposes(tokenizer: Any) -> bool:
    """Whether the normalizer takes characters apart, and so sorts their marks."""
    return _normalized(tokenizer, "\u00e7") != "\u00e7"


def _is_barrier(character: str) -> bool:
    """Whether marks are not sorted over it, though it is taken away afterwards."""
    return unicodedata.category(character).startswith("M") and not unicodedata.combining(character)


def _as_ranges(characters: str) -> str:
    """Of ascending characters, as within a set."""
    ranges: list[list[str]] = []
    for character in characters:
        if ranges and ord(character) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = character
        else:
            ranges.append([character, character])
    return "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in ranges)


def _has_whole_words(tokenizer: Any) -> bool:
    """Whether it is BERT's, and no added token may lie within a word or hold a blank."""
    kinds = [step["type"] for step in (*_steps(tokenizer.normalizer), *_steps(tokenizer.pre_tokenizer))]
    return (
        kinds == _BERT
        and type(tokenizer.model).__name__ == "WordPiece"
        and tokenizer.model.max_input_chars_per_word <= _LONGEST_WORD
        and all(_PUNCTUATION.search(form) and not re.search(r"\s", form) for form in _added(tokenizer))
    )


def find_seam(tokenizer: Any) -> re.Pattern[str] | None:
    """A pattern for the character behind a seam; None: this tokenizer has none.

    Args:
        tokenizer: of the library `tokenizers`.
    """
    try:
        normalizers, splitters = list(_steps(tokenizer.normalizer)), list(_steps(tokenizer.pre_tokenizer))
    except Exception:  # noqa: BLE001 - the library raises a plain one for a step that is written in Python
        return None
    seams: list[tuple[str, str]] = []
    if all(map(_is_known_normalizer, normalizers)):
        joined = _joined(tokenizer, normalizers)
        if all(map(_leaves_words_together, splitters)):
            seams = _seams_of_words(tokenizer, joined)
        elif all(map(_is_known_splitter, splitters)):
            seams = _seams_of_pieces(tokenizer, joined, normalizers, splitters)
    return _compiled(seams) if seams else None


def _compiled(seams: list[tuple[str, str]]) -> re.Pattern[str]:
    # One set of characters at its beginning: that makes a search four times as fast.
    behind = "".join(dict.fromkeys(right for _, right in seams))
    return re.compile(f"[{behind}](?:" + "|".join(f"(?<=[{left}][{right}])" for left, right in seams) + ")")


def _seams_of_pieces(
    tokenizer: Any, joined: set[str], normalizers: list[dict[str, Any]], splitters: list[dict[str, Any]]
) -> list[tuple[str, str]]:
    """The characters on the two sides of places where the pre-tokenizer cuts, each written as within a set."""
    behind = "".join(character for character in _BEHIND if _is_behind_seams(tokenizer, character, joined))
    seams = [(_LETTERS, re.escape(behind))] if behind else []
    blanks = "".join(character for character in behind if character in _BLANKS)
    if blanks and not any(_has_pattern(step) for step in splitters):
        seams.append((re.escape(_CLOSING), re.escape(blanks)))
    if any(step["type"] == "BertPreTokenizer" for step in splitters):  # each of these is a piece
        pieces = "".join(mark for mark in string.punctuation if _is_own_piece(tokenizer, mark))
        # An added token that is a whole word (`single_word`) does not stand beside `_`.
        kept_out = joined | ({"_"} if any(token.single_word for token in _added_tokens(tokenizer)) else set())
        punctuation = "".join(character for character in pieces if character not in kept_out)
        if [step["type"] for step in (*normalizers, *splitters)] == _BERT:
            # They end every word, and no mark of a letter is sorted over them, so anything may stand in front.
            within = {character for form in _added(tokenizer) for character in form[1:]}
            ends = "".join(character for character in dict.fromkeys(behind + punctuation) if character not in within)
            seams = [("^" + re.escape(_BLANKS), re.escape(ends))] if ends else []
        elif punctuation:
            seams.append((re.escape(pieces), re.escape(punctuation)))
    alone = any(step["type"] == "BertNormalizer" and step["handle_chinese_chars"] for step in normalizers)
    # An added token that is a whole word (`single_word`) is looked for between characters that belong to no word.
    if alone and _separates(tokenizer, "\u6f22", "\u5b57") and not re.search(f"[{_HAN}]", "".join(_added(tokenizer))):
        seams.append((_HAN, _HAN))
    return seams


def _seams_of_words(tokenizer: Any, joined: set[str]) -> list[tuple[str, str]]:
    """The same in front of the blanks of a text that is one piece: SentencePiece writes them `_BLANK`.

    If the vocabulary has no entry over such a place, no merge of BPE and no entry of Unigram reaches over it. Both then
    find the best tokens in front of it as if nothing stood behind.
    """
    pieces = _split(tokenizer, "a b")
    if len(pieces) != 1 or not pieces[0].endswith(f"a{_BLANK}b") or not joined.isdisjoint({" ", _BLANK}):
        return []
    over = re.compile(f"[^{_BLANK}]{_BLANK}")
    if not _is_plain(tokenizer.model) or any(map(over.search, tokenizer.get_vocab(with_added_tokens=False))):
        return []
    return [(_LETTERS + re.escape(_CLOSING), " ")]


def _is_plain(model: Any) -> bool:
    """Whether what stands at the end of a piece is treated as anything else."""
    if type(model).__name__ != "BPE":
        return type(model).__name__ == "Unigram"
    return not (model.dropout or model.ignore_merges or model.continuing_subword_prefix or model.end_of_word_suffix)


def _joined(tokenizer: Any, normalizers: list[dict[str, Any]]) -> set[str]:
    """Characters that an added token or a replacement may join with what stands in front of them."""
    joined = {
        character
        for form in _added(tokenizer)
        for before, character in pairwise(form)
        if not before.isspace() and before != _BLANK
    }
    for step in normalizers:
        if step["type"] == "Replace" and len(replaced := step["pattern"].get("String", "")) > 1:
            joined.update(replaced)
    return joined


def _is_known_normalizer(step: dict[str, Any]) -> bool:
    if step["type"] != "Replace":
        return step["type"] in _NORMALIZERS
    pattern = step["pattern"]
    if "Regex" in pattern:
        return pattern["Regex"] in _REPLACED
    return not re.search(f"[{_LETTERS}{re.escape(_CLOSING)}]", pattern["String"])


def _is_known_splitter(step: dict[str, Any]) -> bool:
    if step["type"] != "Split":
        return step["type"] in _SPLITTERS
    return step["pattern"].get("Regex") in _PATTERNS and step["behavior"] == "Isolated" and not step["invert"]


def _leaves_words_together(step: dict[str, Any]) -> bool:
    """Of a text without blanks: the normalizer has replaced them, or this step does."""
    if step["type"] == "Split":
        return bool(step["pattern"].get("String") == " ")
    return bool(step["type"] == "Metaspace" and not step["split"])


def _has_pattern(step: dict[str, Any]) -> bool:
    return step["type"] == "Split" or bool(step["type"] == "ByteLevel" and step["use_regex"])


def _is_behind_seams(tokenizer: Any, character: str, joined: set[str]) -> bool:
    normalized = set(_normalized(tokenizer, f"a{character}a")) - {"a"}
    followers = (character + "b", character * 2 + "b", character + " b")
    return joined.isdisjoint({character, *normalized}) and all(
        _separates(tokenizer, sample, follower) for sample in _SAMPLES for follower in followers
    )


def _separates(tokenizer: Any, left: str, right: str) -> bool:
    """Whether the left part has the same pieces as without the right one, which has its own."""
    alone, both = _split(tokenizer, left), _split(tokenizer, left + right)
    return both[: len(alone)] == alone and len(both) > len(alone)


def _is_own_piece(tokenizer: Any, mark: str) -> bool:
    return _normalized(tokenizer, mark) == mark and _split(tokenizer, f"a{mark}{mark}b") == ["a", mark, mark, "b"]


def _split(tokenizer: Any, text: str) -> list[str]:
    normalized = _normalized(tokenizer, text)
    if tokenizer.pre_tokenizer is None:
        return [normalized]
    return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]


def _normalized(tokenizer: Any, text: str) -> str:
    normalized: str = text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)
    return normalized


def _added(tokenizer: Any) -> set[str]:
    """The added tokens, as they are written and as they are normalized: either may be looked for."""
    contents = [token.content for token in _added_tokens(tokenizer)]
    return {form for content in contents for form in (content, _normalized(tokenizer, content))}


def _added_tokens(tokenizer: Any) -> Sequence[Any]:
    return list(tokenizer.get_added_tokens_decoder().values())


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _steps(component: Any) -> Iterator[dict[str, Any]]:
    """A normalizer or pre-tokenizer as the library writes it into its JSON, without its sequences."""
    if component is not None:
        yield from _flat(json.loads(component.__getstate__()))


def _flat(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if step["type"] != "Sequence":
        yield step
        return
    for part in step.get("normalizers") or step.get("pretokenizers") or ():
        yield from _flat(part)
