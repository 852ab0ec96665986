"""A line of a batch as rows, one for each of its texts, and from their outcomes back to one answer. Pure.

The first row of a line says whose it is. A line that is answered without work is one row without a text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TypeAlias

import orjson

from tasks.errors import RequestError
from tasks.ingestion.embedded_rows import EmbeddedRow
from tasks.item import TextError, Vector
from tasks.storage.rows_file import row_of
from tasks.wire.embeddings_body import EmbeddingsBody

_OPTIONS = frozenset({"prompt_name", "input_type", "dimensions", "normalize", "truncate"})
_UNPROCESSABLE = 422
"""What the synchronous call answers for a text of which the model makes no vector."""


@dataclass(frozen=True, slots=True)
class LineError:
    """Why a line has no vectors: what the synchronous call would have answered for its body.

    `status` is the HTTP status; `message` holds no text of the line.
    """

    code: str
    message: str
    status: int
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One request of a batch: its number from 0, the caller's own id, and whether it wants base64."""

    number: int
    custom_id: str
    base64: bool


Outcome: TypeAlias = list[Vector] | LineError | TextError
"""Of a line: a vector for each of its texts, what the endpoint would have answered, or why it was never executed."""


def rows_of_line(custom_id: str, body: EmbeddingsBody) -> list[bytes]:
    """The rows of a line with this body, without line breaks."""
    options = {name: getattr(body, name) for name in _OPTIONS & body.model_fields_set}
    texts, line = body.input, [custom_id, body.encoding_format == "base64"]
    return [row_of(texts[0], options, line=line), *[row_of(text, options) for text in texts[1:]]]


def refused_row(custom_id: str, error: LineError) -> bytes:
    """The row of a line that the endpoint would refuse, so that this is decided once."""
    return orjson.dumps({"line": [custom_id, False], "refused": astuple(error)})


def answered(rows: Iterable[EmbeddedRow]) -> Iterator[tuple[Line, Outcome]]:
    """Every line once, in order, with its outcome. The vectors of one line are held at a time.

    The first text without a vector decides what becomes of its line. A refusal stands, also in a batch that expired.
    """
    line: Line | None = None
    refusal: LineError | None = None
    texts = list[Vector | TextError]()
    for _, row, outcome in rows:
        fields = orjson.loads(row)
        if "line" in fields:
            if line is not None:
                yield line, refusal or _joined(texts)
            line = Line(0 if line is None else line.number + 1, *fields["line"])
            refusal = LineError(*fields["refused"]) if "refused" in fields else None
            texts = []
        texts.append(outcome)
    if line is not None:
        yield line, refusal or _joined(texts)


def _joined(texts: Sequence[Vector | TextError]) -> Outcome:
    vectors = list[Vector]()
    for index, text in enumerate(texts):
        if isinstance(text, TextError):
            return text
        if text.error is not None:
            return _as_if_called(text.error, index)
        vectors.append(text)
    return vectors


def _as_if_called(error: TextError, index: int) -> LineError:
    param = f"input[{index}]"
    status = RequestError.status if error.refused else _UNPROCESSABLE
    return LineError(error.code, f"{param}: {error.message}", status, param)
