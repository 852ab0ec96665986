"""One line of an output or error file, as OpenAI's readers expect it. Pure."""

import hashlib
from dataclasses import dataclass
from typing import Self, TypeAlias

import orjson

from tasks.ledger import ItemError, foreign
from tasks.ledger.batches import FileKind
from tasks.ledger.embedding_list import embedding_list, items
from tasks.ledger.parts import RowError, RowOutcome

_ID_CHARS = 24

Outcome: TypeAlias = RowOutcome | RowError | ItemError
"""What became of a row: an answer; what an answer would have said; or why it was never executed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a batch: its number from 0, the caller's own id, and whether it wants base64."""

    number: int
    custom_id: str
    base64: bool

    @classmethod
    def of_line(cls, number: int, line: bytes) -> Self:
        """From a line that has been checked."""
        request = orjson.loads(line)
        body = foreign.in_own_words(request["body"])
        return cls(number, request["custom_id"], body.get("encoding_format") == "base64")


def render_line(batch_id: str, row: Row, outcome: Outcome, model: str) -> tuple[FileKind, bytes]:
    """The file that it belongs into, and the line with its line break. Rendering it again gives the same bytes."""
    unique = hashlib.sha256(f"{batch_id} {row.number}".encode()).hexdigest()[:_ID_CHARS]
    head = orjson.dumps({"id": f"batch_req_{unique}", "custom_id": row.custom_id})[:-1]
    if isinstance(outcome, ItemError):
        error = orjson.dumps({"code": outcome.code, "message": outcome.message})
        return "error", head + b',"response":null,"error":' + error + b"}\n"
    failed = outcome.error if isinstance(outcome, RowOutcome) else outcome
    if failed is None and isinstance(outcome, RowOutcome):
        return "output", head + _response(200, unique, _answer(row, outcome, model))
    assert isinstance(failed, RowError)  # noqa: S101 - for the type checker: the cases above are the others
    return "error", head + _response(failed.status, unique, _refusal(failed))


def _response(status: int, unique: str, body: bytes) -> bytes:
    head = orjson.dumps({"status_code": status, "request_id": f"req_{unique}"})[:-1]
    return b',"response":' + head + b',"body":' + body + b'},"error":null}\n'


def _answer(row: Row, outcome: RowOutcome, model: str) -> bytes:
    entries = items(outcome.vectors, base64=row.base64, truncated=outcome.truncated)
    return embedding_list(entries, model=model, tokens=outcome.tokens)


def _refusal(error: RowError) -> bytes:
    kind = "invalid_request_error" if error.status < 500 else "server_error"  # noqa: PLR2004 - HTTP's own border
    return orjson.dumps({"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}})
