"""Token numbers as input: they become texts again, with the vocabulary of OpenAI's clients.

LangChain's `OpenAIEmbeddings` sends such numbers unless it is told not to. They are cl100k_base's, never the model's
own, so taking them for the model's would give wrong vectors without any error. The vocabulary is not part of tiktoken:
it comes from tiktoken's cache (`TIKTOKEN_CACHE_DIR`) or from the network, once, in a thread, when it is first needed.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from tasks.errors import EmptyInput, InputTooLarge, InvalidType, InvalidValue, NotReady
from tasks.item import size_bytes

_log = logging.getLogger(__name__)

ENCODING = "cl100k_base"
"""Of all of OpenAI's embedding models, and what LangChain takes for a model whose name it does not know."""
LOAD_WAIT_S = 10.0
"""A request waits so long for the vocabulary; the download goes on, so a later one may find it."""
_LOADING_RETRY_AFTER_S = 5
_RETRY_S = 300.0
"""Between a failed attempt and the next one."""
GIVE_UP_S = 120.0
"""After so long no caller is told to come back, as when a proxy is silent."""
_TOKENS_AT_ONCE = 8192
"""A token may stand for 128 bytes, so a long array is decoded in pieces until it is too large."""


class Encoding(Protocol):
    """What is needed of `tiktoken.Encoding`."""

    @property
    def n_vocab(self) -> int:
        """One more than the largest token number."""

    def decode_bytes(self, tokens: Sequence[int]) -> bytes:
        """The bytes that these tokens stand for; raises `KeyError` for a number that is none."""


class VocabularyNotLoaded(Exception):
    """Token numbers came before `vocabulary` is there: load it, then try again."""

    def __init__(self, vocabulary: "Vocabulary") -> None:
        super().__init__()
        self.vocabulary = vocabulary


class Vocabulary:
    """Decodes token numbers once its encoding is loaded.

    Args:
        max_input_bytes: of one text.
        max_total_bytes: of all texts of one request: a few digits may stand for 128 bytes.
        load: gives the encoding or raises; may take long. By default tiktoken's cl100k_base.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        *,
        max_input_bytes: int,
        max_total_bytes: int,
        load: Callable[[], Encoding] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_input_bytes = max_input_bytes
        self._max_total_bytes = max_total_bytes
        self._load = load or _cl100k_base
        self._clock = clock
        self._loading: _Loading | None = None
        self._encoding: Encoding | None = None

    async def load(self, patience_s: float) -> None:
        """Returns when the vocabulary is there. The event loop goes on meanwhile.

        Raises:
            NotReady: it is not there after `patience_s`, or `LOAD_WAIT_S`; a later call may find it.
            InvalidType: it cannot be had; with the way out.
        """
        if self._encoding is not None:
            return
        if self._loading is None or self._loading.may_be_repeated():
            self._loading = _Loading(self._load, self._clock)
        loading = self._loading
        if loading.hopeless():
            raise _refusal()
        waiting = asyncio.wrap_future(loading.future)
        try:
            # No `asyncio.timeout`: a download that timed out raises the same error, and will not be there soon.
            if not (await asyncio.wait([waiting], timeout=min(patience_s, LOAD_WAIT_S)))[0]:
                raise _refusal() if loading.hopeless() else _not_yet()
        finally:
            waiting.cancel()
        if waiting.exception() is not None:
            raise _refusal() from None
        self._encoding = waiting.result()

    def texts(self, value: Sequence[object]) -> list[str]:
        """The texts of one array of token numbers, `[1, 2]`, or of several, `[[1], [2]]`. `value` is not empty.

        Raises:
            VocabularyNotLoaded: `load` must come first.
            RequestError: an array is empty, holds something else or a number that is no token, or stands for too much.
        """
        if self._encoding is None:
            raise VocabularyNotLoaded(self)
        if type(value[0]) is int:
            return [self._text(self._encoding, value, "input", self._max_input_bytes)]
        left = self._max_total_bytes
        texts = []
        for index, array in enumerate(value):
            text = self._text(self._encoding, array, f"input[{index}]", min(self._max_input_bytes, left))
            left -= size_bytes(text)
            texts.append(text)
        return texts

    def _text(self, encoding: Encoding, array: object, param: str, max_bytes: int) -> str:
        if not isinstance(array, Sequence) or isinstance(array, str):
            raise InvalidType(f"{param} must be a list of token numbers, as the first one is.", param=param)
        if not array:
            raise EmptyInput(f"{param} is an empty list of token numbers; leave it out.", param=param)
        pieces, size = [], 0
        for start in range(0, len(array), _TOKENS_AT_ONCE):
            tokens = array[start : start + _TOKENS_AT_ONCE]
            _require_tokens(tokens, start, param, encoding.n_vocab)
            pieces.append(_bytes(encoding, tokens, param))
            size += len(pieces[-1])
            if size > max_bytes:
                raise self._too_large(param)
        # Clients cut long texts at a number of tokens, which may be in the middle of a character. What takes its place
        # has three bytes for each broken one, so the text can be larger than what it was made of, never smaller.
        text = b"".join(pieces).decode("utf-8", errors="replace")
        if size_bytes(text) > max_bytes:
            raise self._too_large(param)
        return text

    def _too_large(self, param: str) -> InputTooLarge:
        return InputTooLarge(
            f"{param} stands for more text than is taken: {self._max_input_bytes:,} bytes in one input "
            f"(EMBEDQ_MAX_INPUT_BYTES), {self._max_total_bytes:,} in one request (EMBEDQ_MAX_BODY_BYTES). Split it.",
            param=param,
        )


def _require_tokens(tokens: Sequence[object], start: int, param: str, n_vocab: int) -> None:
    for index, token in enumerate(tokens, start):
        if type(token) is not int:  # True is an int, too
            where = f"{param}[{index}]"
            raise InvalidType(
                f"{where} must be a token number: a list in input is one text. Send texts as strings.", param=where
            )
        if not 0 <= token < n_vocab:
            where = f"{param}[{index}]"
            raise InvalidValue(f"{where} is no token of {ENCODING}, which has {n_vocab:,}.", param=where)


def _bytes(encoding: Encoding, tokens: Sequence[int], param: str) -> bytes:
    try:
        return encoding.decode_bytes(tokens)
    except KeyError:  # the numbers have gaps
        raise InvalidValue(f"{param} holds a number that is no token of {ENCODING}.", param=param) from None


def _not_yet() -> NotReady:
    return NotReady(
        f"input holds token numbers, and the {ENCODING} vocabulary that decodes them is still being loaded; try again "
        f"shortly, or send strings (LangChain: check_embedding_ctx_length=False).",
        param="input",
        retry_after_s=_LOADING_RETRY_AFTER_S,
    )


def _refusal() -> InvalidType:
    return InvalidType(
        f"input holds token numbers, and this server cannot decode them: it has no {ENCODING} vocabulary. Send strings "
        f"(LangChain: check_embedding_ctx_length=False).",
        param="input",
    )


def _cl100k_base() -> Encoding:
    import tiktoken  # noqa: PLC0415 - an extra, and megabytes that most servers never need

    return tiktoken.get_encoding(ENCODING)


class _Loading:
    """One attempt at the encoding, in a thread."""

    def __init__(self, load: Callable[[], Encoding], clock: Callable[[], float]) -> None:
        self._clock = clock
        self.future: Future[Encoding] = Future()
        self.future.set_running_or_notify_cancel()  # a request that gives up must not cancel what others wait for
        self._load = load
        self._began_s = self._clock()
        self._failed_at_s: float | None = None
        # Not asyncio's pool: its threads are waited for at exit, and a download without a network ends after minutes.
        threading.Thread(target=self._run, name="vocabulary", daemon=True).start()

    def may_be_repeated(self) -> bool:
        """Whether it failed long enough ago."""
        return self._failed_at_s is not None and self._clock() - self._failed_at_s >= _RETRY_S

    def hopeless(self) -> bool:
        """It failed, or takes so long that no caller should be told to come back. It may still succeed."""
        if self.future.done():
            return self.future.exception() is not None
        return self._clock() - self._began_s >= GIVE_UP_S

    def _run(self) -> None:
        try:
            self.future.set_result(self._load())
        except BaseException as error:  # noqa: BLE001 - whatever a missing package or a network raises means the same
            self._failed_at_s = self._clock()
            _log.warning("token numbers cannot be decoded: no %s (%s)", ENCODING, type(error).__name__)
            self.future.set_exception(error)
