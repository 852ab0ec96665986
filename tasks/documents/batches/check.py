"""Checking a batch's lines, one after the other: what is wrong with each, and how they are cut into units. Pure."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, field
from typing import Any, Self

import orjson

from tasks import lines
from tasks.documents.batches.body import body_fault, inputs_of
from tasks.documents.batches.facts import Limits, Models
from tasks.item import cost
from tasks.records.batches import ENDPOINT, BatchFault
from tasks.storage.vector_part import RowError
from tasks.wire.json_limits import has_more_parts

# Lines of a file that comes in pieces: where each lies and what is in it, in bounded memory. Pure.

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank.

    Attributes:
        number: counts from 1, blank lines too, as an editor does.
        offset: of its first byte in the file.
        data: its bytes without the line break; None: it is longer than allowed.
    """

    number: int
    offset: int
    data: bytes | None


def split_lines(chunks: Iterable[bytes], max_line_bytes: int) -> Iterator[Line]:
    """The lines of a file that are not blank. Of a line above `max_line_bytes` no more than that is ever kept."""
    offset = 0
    # Room for what does not count: a mark at the beginning, and the "\r" of a line break.
    for number, line in enumerate(lines.split_lines(chunks, max_line_bytes + len(_BOM) + 1), 1):
        start, data = offset, line.data
        offset += line.size_bytes
        if data is None:
            yield Line(number, start, None)
            continue
        if start == 0 and data.startswith(_BOM):
            start, data = len(_BOM), data[len(_BOM) :]
        data = data.removesuffix(b"\r")
        if data.strip():
            yield Line(number, start, data if len(data) <= max_line_bytes else None)


# A line whose body the endpoint would refuse, and what stands in its place in the batch's copy of the file. Pure.


@dataclass(frozen=True, slots=True)
class Refusal:
    """One line that is answered without work: the caller's own id, and what the endpoint would have answered."""

    custom_id: str
    error: RowError

    def to_line(self) -> bytes:
        """Without its line break."""
        return orjson.dumps([self.custom_id, *astuple(self.error)])

    @classmethod
    def of_line(cls, line: bytes) -> Self | None:
        """Inverse of `to_line`; None for a request."""
        if not line.startswith(b"["):
            return None
        custom_id, *error = orjson.loads(line)
        return cls(custom_id, RowError(*error))


MAX_FAULTS = 1000
_REQUIRED = ("custom_id", "method", "url", "body")
_SHOWN_CHARS = 200


@dataclass(slots=True)
class FileCheck:
    """State of the check of one file. `add` every line, then `finish`.

    Attributes:
        faults: what is wrong, at most `MAX_FAULTS`.
        model: of the first line that names one.
        rows: lines taken so far.
        units: `[first row, rows, cost]` of each unit, once finished.
    """

    models: Models
    limits: Limits
    faults: list[BatchFault] = field(default_factory=list)
    model: str | None = None
    rows: int = 0
    units: list[tuple[int, int, int]] = field(default_factory=list)
    _inputs: int = 0
    _ids: dict[bytes, int] = field(default_factory=dict)
    _first: int = 0
    _spent: int = 0
    _unit_cost: int = 0
    _max_tokens: int = 0

    @property
    def full(self) -> bool:
        """Nothing more need be read: the file has too many lines, texts or faults."""
        too_many = self.rows > self.limits.max_lines or self._inputs > self.limits.max_inputs
        return too_many or len(self.faults) >= MAX_FAULTS

    def add(self, line: Line) -> bytes:
        """Takes the next line; what stands for it in the batch's copy of the file, without its line break.

        Nothing where it is at fault. A line that the endpoint would refuse is none of the file's faults: its refusal.
        """
        self.rows += 1
        if line.data is None:
            message = f"This line has more than {self.limits.max_line_bytes:,} bytes (EMBEDQ_MAX_BODY_BYTES)."
            self._fault(BatchFault("line_too_large", message), line)
            return b""
        if has_more_parts(line.data, self.limits.max_line_lists):
            limit = f"{self.limits.max_line_lists:,} lists, objects and fields (EMBEDQ_MAX_BODY_LISTS)"
            message = f"This line has more than {limit}."
            self._fault(BatchFault("line_too_large", message), line)
            return b""
        try:
            request = orjson.loads(line.data)
        except orjson.JSONDecodeError:
            self._fault(BatchFault("invalid_json_line", "This line is not parseable as valid JSON."), line)
            return b""
        found = list(self._line_faults(request, line))
        for fault in found:
            self._fault(fault, line)
        return b"" if found else self._taken(request["custom_id"], request["body"], line.data)

    def finish(self) -> None:
        """The last line has been taken."""
        if self.rows > self.limits.max_lines:
            self._whole("too_many_tasks", f"A batch takes {self.limits.max_lines:,} lines; this file has more.")
        if self._inputs > self.limits.max_inputs:
            self._whole("too_many_inputs", f"A batch takes {self.limits.max_inputs:,} texts; this file has more.")
        if self.rows == 0:
            self._whole("empty_file", "The file has no requests.")
        if self.rows > self._first:
            self.units.append((self._first, self.rows - self._first, self._spent))

    def _taken(self, custom_id: str, body: dict[str, Any], data: bytes) -> bytes:
        error = body_fault(body, self.model or self.models.own[0], self.models, self.limits)
        if error is not None:
            self._cut(1)
            return Refusal(custom_id, error).to_line()
        texts = inputs_of(body)
        self._inputs += len(texts)
        self._cut(sum(cost(len(text) if text.isascii() else len(text.encode()), self._max_tokens) for text in texts))
        return data

    def _fault(self, fault: BatchFault, line: Line) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(BatchFault(fault.code, fault.message, fault.param, line.number))

    def _whole(self, code: str, message: str) -> None:
        self.faults.insert(0, BatchFault(code, message))
        del self.faults[MAX_FAULTS:]

    def _line_faults(self, request: Any, line: Line) -> Iterator[BatchFault]:
        if not isinstance(request, dict):
            yield BatchFault("invalid_request", "Each line must be a JSON object.")
            return
        for name in _REQUIRED:
            if request.get(name) is None:
                yield BatchFault("missing_required_parameter", f"Missing required parameter: '{name}'.", name)
        yield from self._custom_id(request.get("custom_id"), line)
        if request.get("method") not in (None, "POST"):
            yield BatchFault("invalid_method", "The method must be 'POST'.", "method")
        if request.get("url") not in (None, ENDPOINT):
            message = "The URL provided for this request does not match the batch endpoint."
            yield BatchFault("invalid_url", message, "url")
        body = request.get("body")
        if isinstance(body, dict):
            yield from self._model(body)
        elif body is not None:
            yield BatchFault("invalid_request", "body must be a JSON object.", "body")

    def _custom_id(self, custom_id: object, line: Line) -> Iterator[BatchFault]:
        if custom_id is None:
            return
        if not isinstance(custom_id, str):
            yield BatchFault("invalid_request", "custom_id must be a string.", "custom_id")
            return
        # Digests, because ids may be long and there may be many.
        earlier = self._ids.setdefault(hashlib.blake2b(custom_id.encode(), digest_size=16).digest(), line.number)
        if earlier != line.number:
            message = f"The custom_id of this request is that of line {earlier} too; it must be unique in the batch."
            yield BatchFault("duplicate_custom_id", message, "custom_id")

    def _model(self, body: dict[str, Any]) -> Iterator[BatchFault]:
        model = body.get("model")
        if model is None:
            yield BatchFault("invalid_request", "Missing required parameter: 'body.model'.", "body.model")
        elif not isinstance(model, str):
            yield BatchFault("invalid_request", "body.model must be a string.", "body.model")
        elif (served := self.models.served(model)) is None:
            message = f"The provided model '{model[:_SHOWN_CHARS]}' is not supported by the Batch API."
            yield BatchFault("model_not_found", message, "body.model")
        elif self._other_model(served):
            message = "All requests of a batch must name the same model; an earlier line names another one."
            yield BatchFault("mismatched_model", message, "body.model")

    def _other_model(self, model: str) -> bool:
        if self.model is None:
            self.model = model
            self._unit_cost = self.models.unit_cost(model, self.limits)
            self._max_tokens = self.models.max_tokens(model)
        return self.model != model

    def _cut(self, price: int) -> None:
        row = self.rows - 1
        full = row - self._first >= self.limits.unit_max_items or self._spent + price > self._unit_cost
        if row > self._first and full:
            self.units.append((self._first, row - self._first, self._spent))
            self._first, self._spent = row, 0
        self._spent += price
