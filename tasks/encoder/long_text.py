"""Texts far above the model's window: only as much of them is tokenized as the window takes.

A text may end early at a *seam*: between two characters that this tokenizer separates, whatever stands behind them. The
tokens in front of a seam are those of the whole text. If they are more than the window takes, nobody needs the rest; if
not, the text is read up to a later seam, at last to its end.

Seams are in front of a blank behind a letter, digit or closing punctuation, and with BERT's tokenizer between two Han
characters. They are safe in the order in which the library `tokenizers` works: no added token holds a blank or a Han
character; the normalizers listed here work character by character, or join only marks, blanks or quotes; the listed
pre-tokenizers and patterns cut in front of a blank; the model sees one piece after the other; special tokens and
cutting go by the number of tokens. With a step that is not listed a tokenizer has no seams, and its texts are read to
their end.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_CHARS_PER_TOKEN = 8
"""Read first, for each token of the window: prose has 4 to 6."""
_LONG = 4
"""Times that: longer texts are cut. Shorter ones are counted to their end, which takes some milliseconds."""
_GROWTH = 4

_HAN = "\u4e00-\u9fd5"
_LETTERS = (
    "0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"  # Latin
    "\u0391-\u03a1\u03a3-\u03ce\u0400-\u0481\u048a-\u0527"  # Greek, Cyrillic
    "\u0531-\u0556\u0561-\u0587\u10d0-\u10f0"  # Armenian, Georgian
    "\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\u0904-\u0939\u0e01-\u0e30"  # Hebrew, Arabic, Devanagari, Thai
    "\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3"  # Kana, Hangul
)
"""No normalizer makes them blank or nothing, and to every pattern they are letters or digits."""
_CLOSING = re.escape(".,;:!?)\u3001\u3002\uff0c\uff01\uff1f")
_NORMALIZERS = {
    *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend", "Strip"),
    "StripAccents",
}
_REPLACED = {" {2,}", r"\s+"}
_CUT_AT_BLANKS = {"BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"}
_CUT_ELSEWHERE = {"ByteLevel", "Digits", "Punctuation"}
_BEFORE_NUMBERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_BEHIND_NUMBERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = {
    _BEFORE_NUMBERS + r"\p{N}" + _BEHIND_NUMBERS,  # Qwen 2 and 3
    _BEFORE_NUMBERS + r"\p{N}{1,3}" + _BEHIND_NUMBERS,  # Llama 3
}
"""In none of them does a part that takes a letter or a digit take or look at a blank afterwards."""


class WindowReader:
    """Tokenizes texts as far as the window needs them.

    Args:
        tokenizer: of the library `tokenizers`. It neither pads nor changes afterwards; it cuts texts at its window.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        cut = tokenizer.truncation or {}
        # What is cut off on the left is the beginning: the end has to be read.
        from_the_right = cut.get("direction") == "right" and not cut.get("stride")
        self._first_chars = _CHARS_PER_TOKEN * int(cut.get("max_length", 0))
        self._seam = find_seam(tokenizer) if from_the_right and self._first_chars else None
        self._counted_chars = sys.maxsize if self._seam is None else _LONG * self._first_chars

    def __call__(self, texts: Sequence[str], prompt: str) -> list[tuple[Any, bool]]:
        """Of each text behind the prompt the library's encoding, and whether it is of the text to its end."""
        ends = [self._end(text, self._first_chars) for text in texts]
        encodings = self._tokenizer.encode_batch_fast(
            [prompt + text[:end] for text, end in zip(texts, ends, strict=True)]
        )
        read = []
        for text, end, encoding in zip(texts, ends, encodings, strict=True):
            while end < len(text) and not encoding.overflowing:
                end = self._end(text, _GROWTH * end)  # noqa: PLW2901 - of this text alone
                [encoding] = self._tokenizer.encode_batch_fast([prompt + text[:end]])  # noqa: PLW2901 - as above
            read.append((encoding, end == len(text)))
        return read

    def _end(self, text: str, least: int) -> int:
        """Of a beginning of so many characters or more."""
        # Half of a surrogate pair is an error, as in a short text, and wherever it stands: the tokenizer has to see it.
        if len(text) <= self._counted_chars or self._seam is None or not _is_unicode(text):
            return len(text)
        seam = self._seam.search(text, least)
        return seam.start() if seam else len(text)


def find_seam(tokenizer: Any) -> re.Pattern[str] | None:
    """A pattern for the character behind a seam; None: this tokenizer has none.

    Args:
        tokenizer: of the library `tokenizers`.
    """
    try:
        normalizers, splitters = list(_steps(tokenizer.normalizer)), list(_steps(tokenizer.pre_tokenizer))
    except Exception:  # noqa: BLE001 - the library raises a plain one for a step that is written in Python
        return None
    added = "".join(token.content for token in tokenizer.get_added_tokens_decoder().values())
    known = all(map(_is_known_normalizer, normalizers)) and all(
        step["type"] in _CUT_ELSEWHERE or _cuts_at_blanks(step) for step in splitters
    )
    if not known or not any(map(_cuts_at_blanks, splitters)) or re.search(rf"[\s{_HAN}]", added):
        return None
    kinds = [step["type"] for step in (*normalizers, *splitters)]
    if kinds == ["BertNormalizer", "BertPreTokenizer"] and normalizers[0]["handle_chinese_chars"]:
        return re.compile(f"[ \n{_HAN}](?:(?<=[{_LETTERS}{_HAN}{_CLOSING}][ \n])|(?<=[{_HAN}][{_HAN}]))")
    return re.compile(f" (?<=[{_LETTERS}] )")


def _is_known_normalizer(step: dict[str, Any]) -> bool:
    if step["type"] != "Replace":
        return step["type"] in _NORMALIZERS
    pattern = step["pattern"]
    if "Regex" in pattern:
        return pattern["Regex"] in _REPLACED
    return not re.search(r"[\w\s]", pattern["String"])


def _cuts_at_blanks(step: dict[str, Any]) -> bool:
    if step["type"] == "Split":
        return step["pattern"].get("Regex") in _PATTERNS and step["behavior"] == "Isolated" and not step["invert"]
    return step["type"] in _CUT_AT_BLANKS and bool(step.get("split", True) and step.get("use_regex", True))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _steps(component: Any) -> Iterator[dict[str, Any]]:
    """A normalizer or pre-tokenizer as the library writes it into its JSON, without its sequences."""
    if component is None:
        return
    waiting = [json.loads(component.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting = [*(step.get("normalizers") or step.get("pretokenizers") or ()), *waiting]
        else:
            yield step
